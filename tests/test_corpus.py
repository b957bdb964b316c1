"""What holds whatever the format: recognition, the label set, holding out, Python objects, summaries."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix
from written_files import label_sets, noted, write

from cascadexml.corpus import (
    Corpus,
    ReadOptions,
    corpus_from_python,
    read_corpus,
    read_documents,
    statistics,
    summary_lines,
)
from cascadexml.texts import Texts

PLAIN: dict[str, str | bytes] = {
    "train_texts.txt": "one\ntwo words\nthree\nfour\n",
    "train_labels.txt": "b a\n\nc b\na\n",
}
JSONL = '{"text": "one", "labels": ["a"]}\n{"text": "two", "labels": ["b"]}\n{"text": "three", "labels": ["a", "c"]}\n'

# --- recognition ---


def test_nothing_there(tmp_path: Path) -> None:
    for read in (read_corpus, read_documents):
        with pytest.raises(ValueError, match=r"none: no such file or folder; expected train_texts\.txt"):
            read(tmp_path / "none")
        with pytest.raises(ValueError, match=r"is an empty folder; expected train_texts\.txt"):
            read(tmp_path)
    write(tmp_path, {"notes.md": "x", "a.pdf": "y"})
    with pytest.raises(ValueError, match=r"holds no data this program knows, only a\.pdf, notes\.md; expected"):
        read_corpus(tmp_path)


def test_a_file_that_is_not_data(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "just text\n", "b.npz": b"PK\x03\x04", "train.txt": "text here too\n"})
    with pytest.raises(ValueError, match=r"a\.txt is text without labels; give the folder, with train_texts\.txt"):
        read_corpus(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"b\.npz is an archive .* give the folder"):
        read_corpus(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"train\.txt: text without labels"):
        read_corpus(tmp_path)


def test_several_files_and_none_called_train(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"any of a\.jsonl, b\.csv could be the data; name them train, dev and test"):
        read_corpus(write(tmp_path, {"a.jsonl": JSONL, "b.csv": "text,label\na,b\n"}))


def test_test_part_alone_needs_label_ids(tmp_path: Path) -> None:
    write(tmp_path, {"test_texts.txt": "x\n", "test_labels.txt": "b z\n"})
    with pytest.raises(ValueError, match="has no train part, only test; train's labels are the label set"):
        read_corpus(tmp_path)
    corpus = read_corpus(tmp_path, label_ids=Texts.from_strings(["c", "b"]))
    assert corpus.train is None
    assert label_sets(corpus, corpus.test) == [{"b"}]


def test_any_utf8_of_jsonl_is_recognised_by_looking(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {"no_ending": JSONL}) / "no_ending")
    assert corpus.num_labels == 3


# --- the label set of a trained model ---


def test_labels_onto_given_ids(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, PLAIN), ReadOptions(all_labels=True), Texts.from_strings(["z", "b", "a"]))
    assert corpus.train is not None
    assert list(corpus.label_ids) == ["z", "b", "a"]
    assert corpus.train.labels.toarray().astype(int).tolist() == [[0, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert corpus.train.num_unknown.tolist() == [0, 0, 1, 0]
    assert noted(corpus.notes, "the 3 labels given", "2 of the data's 3")
    assert noted(corpus.notes, "all_labels has no effect")


def test_given_ids_are_distinct(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 of the 3 label ids given stand there more than once"):
        read_corpus(write(tmp_path, PLAIN), label_ids=Texts.from_strings(["a", "b", "a"]))


def test_one_file_is_the_test_part_for_a_model(tmp_path: Path) -> None:
    path = write(tmp_path, {"x.jsonl": JSONL}) / "x.jsonl"
    corpus = read_corpus(path, label_ids=Texts.from_strings(["a"]))
    assert corpus.train is None and corpus.test is not None and len(corpus.test) == 3
    assert noted(corpus.notes, "read as the test part")
    both = read_corpus(path, ReadOptions(hold_out=0.3), Texts.from_strings(["a"]))
    assert both.train is not None and both.test is not None


LABELS = st.lists(st.sampled_from(["a", "b", "cc", "ß", "10", "9"]), max_size=5)


@given(st.lists(LABELS, min_size=1), st.lists(LABELS, min_size=1), st.none() | st.permutations(["a", "ß", "7"]))
def test_any_labels_equal_plain_sets(
    train: list[list[str]], test: list[list[str]], given_ids: list[str] | None
) -> None:
    known = {label for row in train for label in row} if given_ids is None else set(given_ids)
    if not known:
        return
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, str | bytes] = {}
        for part, rows in (("train", train), ("test", test)):
            files[f"{part}_texts.txt"] = "x\n" * len(rows)
            files[f"{part}_labels.txt"] = "".join(" ".join(row) + "\n" for row in rows)
        ids = None if given_ids is None else Texts.from_strings(given_ids)
        corpus = read_corpus(write(Path(folder), files), label_ids=ids)
    for rows, part in ((train, corpus.train), (test, corpus.test)):
        assert part is not None
        assert label_sets(corpus, part) == [set(row) & known for row in rows]
        assert part.num_unknown.tolist() == [len(set(row) - known) for row in rows]
        assert part.num_unknown_labels == len({label for row in rows for label in row} - known)
        assert part.labels.has_canonical_format and part.labels.dtype == bool


# --- holding out ---


def test_hold_out_by_seed(tmp_path: Path) -> None:
    lines = "".join(f'{{"id": {n}, "text": "t{n}", "labels": ["l{n % 3}", "only{n}"]}}\n' for n in range(50))
    path = write(tmp_path, {"x.jsonl": lines}) / "x.jsonl"
    corpus = read_corpus(path, ReadOptions(hold_out=0.2, seed=1))
    again = read_corpus(path, ReadOptions(hold_out=0.2, seed=1))
    other = read_corpus(path, ReadOptions(hold_out=0.2, seed=2))
    assert corpus.train is not None and corpus.test is not None and corpus.test.row_ids is not None
    assert again.test is not None and other.test is not None
    assert (len(corpus.train), len(corpus.test)) == (40, 10)
    assert sorted([*corpus.train.texts, *corpus.test.texts]) == sorted(f"t{n}" for n in range(50))
    assert list(again.test.texts) == list(corpus.test.texts) != list(other.test.texts)
    assert [f"t{row_id}" for row_id in corpus.test.row_ids] == list(corpus.test.texts)
    for text, labels in zip(corpus.test.texts, label_sets(corpus, corpus.test), strict=True):
        assert labels == {f"l{int(text[1:]) % 3}"}
    assert corpus.test.num_unknown.tolist() == [1] * 10
    assert noted(corpus.notes, "test part: 10 of 50 documents of train, drawn with seed 1")


def test_hold_out_of_a_folder_takes_features_along(tmp_path: Path) -> None:
    features = "".join(f"0 {row}:1\n" for row in range(4))
    corpus = read_corpus(write(tmp_path, {**PLAIN, "train_v1.txt": features}), ReadOptions(hold_out=0.25))
    assert corpus.test is not None and corpus.test.features is not None
    place = ["one", "two words", "three", "four"].index(corpus.test.texts[0])
    assert corpus.test.features.indices.tolist() == [place]


def test_hold_out_refusals(tmp_path: Path) -> None:
    path = write(tmp_path, {"x.jsonl": JSONL}) / "x.jsonl"
    with pytest.raises(ValueError, match=r"hold_out 0\.1 of 3 documents is 0"):
        read_corpus(path, ReadOptions(hold_out=0.1))
    with pytest.raises(ValueError, match=r"hold_out 0\.9 of 3 documents is 3"):
        read_corpus(path, ReadOptions(hold_out=0.9))
    write(tmp_path / "f", {**PLAIN, "test_texts.txt": "a\n", "test_labels.txt": "a\n"})
    with pytest.raises(ValueError, match=r"hold_out is 0\.5, but these data have a test part already"):
        read_corpus(tmp_path / "f", ReadOptions(hold_out=0.5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hold_out": 1.0}, "hold_out is 1.0, expected a share from 0 to below 1"),
        ({"hold_out": -0.1}, "hold_out is -0.1"),
        ({"seed": -1}, "seed is -1"),
        ({"label_separator": ""}, "label_separator is '', expected at least one character"),
        ({"label_separator": "\n"}, "no line break"),
        ({"text_column": "text"}, "text_column is the string 'text', expected a tuple"),
    ],
)
def test_options_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadOptions(**wrong)


# --- documents alone ---


def test_documents_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO("one\r\n\n{two\u2028}\n\xff".encode("latin-1", "replace").replace(b"?", b"\xe2\x80\xa8"))

    monkeypatch.setattr(sys, "stdin", Stdin)
    documents = read_documents("-")
    assert list(documents.texts) == ["one", "", "{two\u2028}", "\ufffd"]
    assert len(documents) == 4
    assert noted(documents.notes, "standard input", "not UTF-8")


def test_documents_of_a_text_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"x.txt": "12:30 tea, then text\n{not json\n\nlast"}) / "x.txt"
    assert list(read_documents(path).texts) == ["12:30 tea, then text", "{not json", "", "last"]


def test_an_empty_file_has_no_documents(tmp_path: Path) -> None:
    assert len(read_documents(write(tmp_path, {"x.txt": ""}) / "x.txt")) == 0


def test_documents_of_a_folder_without_test_part(tmp_path: Path) -> None:
    assert len(read_documents(write(tmp_path, PLAIN))) == 4
    with pytest.raises(ValueError, match="has the parts train, dev but no test part; name the file"):
        read_documents(write(tmp_path, {"dev_texts.txt": "x\n"}))


# --- Python objects ---


def test_lists_of_names() -> None:
    corpus = corpus_from_python(["one", "two\n", ""], [["b", "big cat"], [], ["b", "b"]])
    assert corpus.train is not None
    assert list(corpus.label_ids) == ["b", "big cat"]
    assert list(corpus.train.texts) == ["one", "two\n", ""]
    assert label_sets(corpus, corpus.train) == [{"b", "big cat"}, set(), {"b"}]
    assert corpus.label_names is None


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix])
def test_a_matrix(kind: Callable[[Any], Any]) -> None:
    matrix = kind(np.array([[0, 1, 0], [1, 0, 0]]))
    corpus = corpus_from_python(["one", "two"], matrix, ["x", "y", "x"])
    assert corpus.train is not None and corpus.label_names is not None
    assert (list(corpus.label_ids), list(corpus.label_names)) == (["0", "1", "2"], ["x", "y", "x"])
    assert corpus.train.labels.toarray().tolist() == [[False, True, False], [True, False, False]]


def test_the_matrix_given_stays_as_it_is() -> None:
    matrix = csr_matrix((np.array([1.0, 0.0, 2.0]), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    corpus_from_python(["one"], matrix)
    assert (matrix.indices.tolist(), matrix.data.tolist()) == ([2, 0, 1], [1.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("texts", "labels", "names", "message"),
    [
        (["a", "b"], [["x"]], None, "2 texts but 1 rows of labels"),
        (["a"], csr_matrix((2, 2)), None, "1 texts but 2 rows of labels"),
        ("abc", [["x"]], None, "texts is one string, expected a sequence"),
        (["a", 3], [["x"], []], None, r"texts\[1\] is 3 \(int\), expected a string"),
        (["a", None], [["x"], []], None, r"texts\[1\] is None"),
        (["a", "b"], [["x"], "xy"], None, r"labels\[1\] is 'xy', expected a list of names: \['xy'\]"),
        (["a", "b"], [["x"], 3], None, r"labels\[1\] is 3, expected a list of names"),
        (["a", "b"], [["x"], [None]], None, r"labels\[1\]: label None is a NoneType"),
        (["a", "b"], [["x"], ["y\nz"]], None, r"labels\[1\]: label 'y\\nz' holds a line break"),
        (["a"], "x", None, "labels is one string"),
        (["a"], np.eye(1), None, "labels is a dense array; expected .*csr_matrix"),
        (["a"], [[]], None, "no document of train has a label"),
        ([], [], None, "the train part has no documents"),
        (["a"], csr_matrix((1, 2)), None, "no document of train has a label"),
        (["a"], csr_matrix(np.eye(1)), ["x", "y"], "2 label_names for 1 columns"),
        (["a"], csr_matrix(np.eye(1)), ["x\n"], "label_names must be strings without line breaks"),
        (["a"], [["x"]], ["x"], "label_names name a matrix's columns"),
    ],
)
def test_wrong_python_objects(texts: Any, labels: Any, names: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corpus_from_python(texts, labels, names)


# --- what is told ---


def test_statistics(tmp_path: Path) -> None:
    numbers = statistics(read_corpus(write(tmp_path, PLAIN)))
    assert numbers == {
        "labels": 3,
        "train documents": 4,
        "labels per document (ALpP)": 1.25,
        "documents per label (APpL)": pytest.approx(5 / 3),
        "words per document": 1.25,
    }


def test_summary(tmp_path: Path) -> None:
    files = {**PLAIN, "train_texts.txt": f"one\n\n{'long ' * 50}\nfour\n", "labels.tsv": "a\tThe first\n"}
    lines = summary_lines(read_corpus(write(tmp_path, files)))
    assert lines[0] == f"Read {tmp_path}"
    assert "  labels: 3" in lines
    assert "  labels per document (ALpP): 1.25" in lines
    shown = [line for line in lines if line.startswith("  train document ")]
    assert [line.split(":")[0] for line in shown] == [f"  train document {row}" for row in (1, 3, 4)]
    assert max(map(len, shown)) < 130
    assert lines[-1] == "    labels: a (The first)"


def test_summary_of_one_document_and_of_many_labels() -> None:
    lines = summary_lines(corpus_from_python(["x"], [[f"l{n}" for n in range(9)]]))
    assert lines[-1] == "    labels: l0, l1, l2, l3, l4 and 4 more"


def test_parts_in_order() -> None:
    corpus = corpus_from_python(["x"], [["a"]])
    assert isinstance(corpus, Corpus)
    assert list(corpus.parts()) == ["train"]


def test_import_is_light() -> None:
    heavy = {"torch", "transformers", "numba", "sklearn", "pyarrow"}
    script = f"import sys, cascadexml.corpus; print(*sorted({heavy!r}.intersection(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
