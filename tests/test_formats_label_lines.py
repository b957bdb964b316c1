"""Raw texts and label lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, save_npz
from written_files import label_sets, noted, write

from cascadexml.corpus import ReadOptions, read_corpus, read_documents
from cascadexml.formats.label_lists import Vocabulary, split_cells
from cascadexml.formats.whole_number_labels import split_whole_numbers
from cascadexml.texts import Texts

PLAIN: dict[str, str | bytes] = {
    "train_texts.txt": "one\ntwo\n\nfour\n",
    "train_labels.txt": "b a\n\nc b b\na\n",
    "test_texts.txt": "five\nsix\n",
    "test_labels.txt": "a x y x\nx\n",
}


def test_three_parts(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "dev_texts.txt": "d\n", "dev_labels.txt": "c\n"}))
    assert corpus.train is not None and corpus.test is not None
    assert list(corpus.label_ids) == ["a", "b", "c"]
    assert list(corpus.train.texts) == ["one", "two", "", "four"]
    assert label_sets(corpus, corpus.train) == [{"a", "b"}, set(), {"b", "c"}, {"a"}]
    assert label_sets(corpus, corpus.dev) == [{"c"}]
    assert label_sets(corpus, corpus.test) == [{"a"}, set()]
    assert corpus.test.num_unknown.tolist() == [2, 1]
    assert corpus.test.num_unknown_labels == 2
    assert corpus.train.num_unknown.tolist() == [0, 0, 0, 0]


def test_matrix_is_canonical(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, PLAIN))
    assert corpus.train is not None
    labels = corpus.train.labels
    assert (labels.dtype, labels.indices.dtype) == (bool, np.int32)
    assert labels.indices.tolist() == [0, 1, 1, 2, 0]
    assert corpus.train.num_unknown.dtype == np.int32


def test_what_was_noticed(tmp_path: Path) -> None:
    files = {**PLAIN, "train_texts.txt": "one\ntwo\n\none\n", "test_texts.txt": "one\r\n\xffsix".encode("latin-1")}
    notes = read_corpus(write(tmp_path, files)).notes
    assert noted(notes, "split at spaces")
    assert noted(notes, "train: 1 documents have an empty text")
    assert noted(notes, "train: 1 documents have no label")
    assert noted(notes, "train: 1 documents repeat the exact text")
    assert noted(notes, "train: 1 labels stand twice with the same document")
    assert noted(notes, "test: 1 documents have the exact text of a train document")
    assert noted(notes, "test: 1 documents have labels outside the label set only")
    assert noted(notes, "test: 2 labels, 3 times, are not in the label set")
    assert noted(notes, "test_texts.txt", "not UTF-8 in 1 lines")
    assert noted(notes, "test_texts.txt", "CR LF")
    assert noted(notes, "label set: the 3 labels of train")


def test_tab_in_any_part_splits_all_at_tab(tmp_path: Path) -> None:
    files = {**PLAIN, "train_labels.txt": "big cat\n\nlion\nbig cat\n", "test_labels.txt": "big cat\t lion \nlion\n"}
    corpus = read_corpus(write(tmp_path, files))
    assert label_sets(corpus, corpus.test) == [{"big cat", "lion"}, {"lion"}]
    assert noted(corpus.notes, "split at TAB")


def test_separator_given(tmp_path: Path) -> None:
    files = {**PLAIN, "train_labels.txt": "big cat, lion\n\nlion,,lion\n\tx\n"}
    corpus = read_corpus(write(tmp_path, files), ReadOptions(label_separator=","))
    assert label_sets(corpus, corpus.train) == [{"big cat", "lion"}, set(), {"lion"}, {"\tx"}]
    corpus = read_corpus(tmp_path, ReadOptions(label_separator="\\t"))
    assert label_sets(corpus, corpus.train)[3] == {"x"}


def test_spaces_are_spaces_only(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "train_labels.txt": "a\u00a0b  c\x0bd \n\n\n\n"}))
    assert label_sets(corpus, corpus.train)[0] == {"a\u00a0b", "c\x0bd"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("10 9\n-1\n100\n2\n", ["-1", "2", "9", "10", "100"]),
        ("10 9\n7\n007\n2\n", ["2", "007", "7", "9", "10"]),
        ("10 9\nx\n100\n2\n", ["10", "100", "2", "9", "x"]),
        ("99999999999999999999 9\n\n10\n\n", ["10", "9", "99999999999999999999"]),
        ("é\nz\nZ\n\n", ["Z", "z", "é"]),
    ],
)
def test_label_order(tmp_path: Path, labels: str, expected: list[str]) -> None:
    assert list(read_corpus(write(tmp_path, {**PLAIN, "train_labels.txt": labels})).label_ids) == expected


def test_order_does_not_depend_on_documents(tmp_path: Path) -> None:
    files = {**PLAIN, "train_texts.txt": "four\n\ntwo\none\n", "train_labels.txt": "a\nc b\n\nb a\n"}
    one, other = read_corpus(write(tmp_path / "1", PLAIN)), read_corpus(write(tmp_path / "2", files))
    assert list(one.label_ids) == list(other.label_ids)


@given(st.lists(st.lists(st.integers(0, 10**7).map(str))), st.sampled_from([" ", "\t"]))
def test_the_fast_way_equals_the_plain_one(rows: list[list[str]], separator: str) -> None:
    cells = Texts.from_strings(separator.join(row) for row in rows)
    fast_ids, plain_ids = Vocabulary({b"5": 0}), Vocabulary({b"5": 0})
    fast = split_whole_numbers(cells, separator.encode(), fast_ids)
    plain = split_cells(cells, separator.encode(), plain_ids, "x")
    assert fast is not None
    assert fast.offsets.tolist() == plain.offsets.tolist()
    assert [list(fast_ids)[n] for n in fast.numbers] == [list(plain_ids)[n] for n in plain.numbers]


@pytest.mark.parametrize("cell", ["1 x", "01", "1\u00a02", "1234567890", "60000000", "-1", "1\x0b2"])
def test_the_fast_way_knows_its_limits(cell: str) -> None:
    assert split_whole_numbers(Texts.from_strings(["1", cell]), b" ", Vocabulary()) is None


def test_raw_texts_are_preferred(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "train_raw_texts.txt": "One!\nTwo!\n\nFour!\n"}))
    assert corpus.train is not None
    assert corpus.train.texts[0] == "One!"
    assert noted(corpus.notes, "train_texts.txt is not read")


def test_names(tmp_path: Path) -> None:
    files = {**PLAIN, "labels.tsv": "z\tNot in train\na\tThe first\r\n\nb\tB, TAB\there\nc\t\n"}
    corpus = read_corpus(write(tmp_path, files))
    assert corpus.label_names is not None
    assert list(corpus.label_ids) == ["a", "b", "c"]
    assert list(corpus.label_names) == ["The first", "B, TAB\there", "c"]
    everything = read_corpus(tmp_path, ReadOptions(all_labels=True))
    assert everything.label_names is not None and everything.train is not None
    assert list(everything.label_ids) == ["a", "b", "c", "z"]
    assert everything.label_names[3] == "Not in train"
    assert everything.train.labels.shape == (4, 4)
    assert noted(everything.notes, "1 more of labels.tsv")


def test_all_labels_may_know_labels_of_test(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "labels.tsv": "x\tEx\n"}), ReadOptions(all_labels=True))
    assert corpus.test is not None
    assert label_sets(corpus, corpus.test) == [{"a", "x"}, {"x"}]
    assert corpus.test.num_unknown.tolist() == [1, 0]


def test_all_labels_without_a_list_has_no_effect_and_says_so(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, PLAIN), ReadOptions(all_labels=True))
    assert corpus.num_labels == 3
    assert noted(corpus.notes, "all_labels has no effect", "labels.tsv")


def test_excluded_pairs(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "filter_labels_test.txt": "1 b\n0 c\n0 unheard-of\n1 x\n1 b\n"}))
    assert corpus.test is not None and corpus.test.excluded is not None and corpus.train is not None
    assert corpus.test.excluded.toarray().tolist() == [[False, False, True], [False, True, False]]
    assert corpus.test.excluded.dtype == bool
    assert corpus.train.excluded is None
    assert noted(corpus.notes, "filter_labels_test.txt: 4 pairs", "1 more of labels that no document has")


def test_features_without_header(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "train_v1.txt": "0,1 0:0.5 3:1\n 1:2e-1\n\n2 2:.5 \n",
        "test_v1.txt": "0 5:1\n1 0:1\n",
    }
    corpus = read_corpus(write(tmp_path, {**PLAIN, **files}))
    assert corpus.train is not None and corpus.test is not None
    assert corpus.train.features is not None and corpus.test.features is not None
    assert corpus.train.features.dtype == np.float32
    assert (
        corpus.train.features.toarray().tolist()
        == np.float32([[0.5, 0, 0, 1, 0, 0], [0, 0.2, 0, 0, 0, 0], [0] * 6, [0, 0, 0.5, 0, 0, 0]]).tolist()
    )
    assert corpus.test.features.shape == (2, 6)
    assert label_sets(corpus, corpus.train)[0] == {"a", "b"}


def test_features_as_npz(tmp_path: Path) -> None:
    save_npz(write(tmp_path, PLAIN) / "X.trn.npz", csr_matrix(np.eye(4)))
    corpus = read_corpus(tmp_path)
    assert corpus.train is not None and corpus.test is not None
    assert corpus.train.features is not None and corpus.train.features.nnz == 4
    assert corpus.test.features is None


def test_a_text_file_named_like_features_is_left_alone(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "train.txt": "12:30 a meeting\n1 2 3\n"}))
    assert corpus.train is not None and corpus.train.features is None


def test_validation_files_of_another_name_are_named(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**PLAIN, "valid_texts.txt": "x\n"}))
    assert corpus.dev is None
    assert noted(corpus.notes, "valid_texts.txt is not read", "dev")


def test_documents_are_the_test_part(tmp_path: Path) -> None:
    write(tmp_path, {**PLAIN, "test_texts.txt": "five\n\nsix\n", "test_labels.txt": "not looked at"})
    assert list(read_documents(tmp_path).texts) == ["five", "", "six"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"train_labels.txt": "a\nb\n"},
            r"train_labels\.txt:3: train_labels\.txt has 2 lines, but train_texts\.txt has 4",
        ),
        ({"train_labels.txt": "a\n\n\n\n\n"}, r"train_labels\.txt:5: train_labels\.txt has 5 lines, but .* has 4"),
        ({"train_labels.txt": "\n\n \n\n"}, "no document of train has a label"),
        ({"train_texts.txt": "", "train_labels.txt": ""}, "the train part has no documents"),
        ({"test_texts.txt": "", "test_labels.txt": ""}, "the test part has no documents"),
        ({"labels.tsv": "a\tA\nb B\n"}, r"labels\.tsv:2: 'b B' is not id TAB name"),
        ({"labels.tsv": "\tA\n"}, r"labels\.tsv:1: .* is not id TAB name"),
        ({"labels.tsv": "a\tA\n\nb\tB\na\tAgain\n"}, r"labels\.tsv:4: label 'a' stands in line 1 already"),
        (
            {"filter_labels_test.txt": "0 a\n2 b\n"},
            r"filter_labels_test\.txt:2: document 2 is out of range: there are 2",
        ),
        ({"filter_labels_test.txt": "0\n"}, r"filter_labels_test\.txt:1: '0' is not a pair"),
        ({"filter_labels_test.txt": "a 0\n"}, r"filter_labels_test\.txt:1: 'a 0' is not a pair"),
        ({"train_v1.txt": "0 0:1\n1 0:1\n"}, r"train_v1\.txt has 2 rows, but the train part has 4 documents"),
        ({"train_v1.txt": "0 0:1\n1 0:1 x:2\n"}, r"train_v1\.txt:2: 'x:2' is not feature:value"),
        ({"X.trn.npz": "no matrix"}, r"X\.trn\.npz: not a sparse matrix"),
        ({"dev_texts.txt": "a\n"}, r"dev_labels\.txt is missing: dev_texts\.txt needs its labels"),
    ],
)
def test_bad_folders(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corpus(write(tmp_path, {**PLAIN, **files}))


def test_a_folder_where_a_file_is_wanted(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    (tmp_path / "train_labels.txt").unlink()
    (tmp_path / "train_labels.txt").mkdir()
    with pytest.raises(ValueError, match=r"train_labels\.txt is a folder, expected a file"):
        read_corpus(tmp_path)


def test_no_labels_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train_labels\.txt is missing: train_texts\.txt needs its labels"):
        read_corpus(write(tmp_path, {"train_texts.txt": "a\n"}))
    assert list(read_documents(tmp_path).texts) == ["a"]


def test_labels_without_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train_labels\.txt holds no texts.* put train_texts\.txt beside it"):
        read_corpus(write(tmp_path, {"train_labels.txt": "a\n"}))
