"""Formats whose labels are columns of a matrix: XC header files, trn.json, pecos."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix, save_npz
from written_files import label_sets, noted, write

from cascadexml.corpus import ReadOptions, read_corpus, read_documents
from cascadexml.formats.matrix_lines import read_matrix_lines
from cascadexml.texts import Texts

HEADER: dict[str, str | bytes] = {
    "train.txt": "3 4 5\n3,1 0:0.5 3:1e-2\n 1:2\n0,0\n",
    "train_texts.txt": "one\ntwo\nthree\n",
    "test.txt": "1 4 5\n4 2:1\n",
    "test_texts.txt": "four\n",
}
JSON: dict[str, str | bytes] = {
    "trn.json": "\n".join(
        json.dumps(row)
        for row in [
            {"uid": "u1", "title": "One", "content": "first", "target_ind": [2, 0], "target_rel": [1.0, 1.0]},
            {"uid": "u2", "title": "Two", "content": "", "target_ind": []},
        ]
    ),
    "tst.json.gz": '{"uid": "u3", "title": "", "content": "third", "target_ind": [1, 3]}\n',
}
NAMES: dict[str, str | bytes] = {"lbl.json": "".join(f'{{"uid": "l{n}", "title": "Name {n}"}}\n' for n in range(5))}


def pecos(folder: Path, items: str | None = None) -> Path:
    write(folder, {"X.trn.txt": "one\ntwo\n", "X.tst.txt": "three\n"})
    save_npz(folder / "Y.trn.npz", csr_matrix(np.array([[1, 0, 1], [0, 0, 0]], dtype=np.float32)))
    save_npz(folder / "Y.tst.npz", csc_matrix(np.array([[0, 1, 0]], dtype=np.float32)))
    save_npz(folder / "X.trn.tfidf.npz", csr_matrix(np.eye(2)))
    return folder if items is None else write(folder, {"output-items.txt": items})


# --- the XC repository's header files ---


def test_header_files_with_texts(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, HEADER))
    assert corpus.train is not None and corpus.test is not None and corpus.train.features is not None
    assert list(corpus.label_ids) == ["0", "1", "2", "3", "4"]
    assert label_sets(corpus, corpus.train) == [{"1", "3"}, set(), {"0"}]
    assert label_sets(corpus, corpus.test) == [{"4"}]
    assert corpus.train.features.shape == (3, 4)
    assert corpus.train.features[0].toarray()[0].tolist() == [0.5, 0, 0, np.float32(0.01)]
    assert corpus.train.labels.indices.dtype == np.int32
    assert noted(corpus.notes, "label set: all 5 columns")
    assert noted(corpus.notes, "train: 1 labels stand twice")


def test_label_lines_come_before_a_header_file(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**HEADER, "train_labels.txt": "a\n\nb\n", "test_labels.txt": "a\n"}))
    assert list(corpus.label_ids) == ["a", "b"]
    assert corpus.train is not None and corpus.train.features is not None


def test_columns_onto_given_ids(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, HEADER), label_ids=Texts.from_strings(["3", "x", "0"]))
    assert corpus.train is not None and corpus.test is not None
    assert corpus.train.labels.toarray().astype(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert corpus.train.num_unknown.tolist() == [1, 0, 0]
    assert corpus.test.num_unknown.tolist() == [1]


def test_header_filters_are_columns(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**HEADER, "filter_labels_test.txt": "0 2\n"}))
    assert corpus.test is not None and corpus.test.excluded is not None
    assert corpus.test.excluded.toarray().tolist() == [[False, False, True, False, False]]


def test_headerless_labels_end_at_the_last_in_use(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {**HEADER, "train.txt": "0 0:1\n2 1:1\n1 3:1\n", "test.txt": "1,7 0:1\n"}
    corpus = read_corpus(write(tmp_path, files))
    assert corpus.test is not None
    assert list(corpus.label_ids) == ["0", "1", "2"]
    assert corpus.test.num_unknown.tolist() == [1]
    assert noted(corpus.notes, "labels are columns 0 to 2")


@given(st.integers(1, 20), st.integers(1, 30), st.integers(0, 2**20), st.integers(1, 7))
def test_any_matrix_comes_back(num_rows: int, num_columns: int, seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    features = csr_matrix(rng.random((num_rows, num_columns)) * (rng.random((num_rows, num_columns)) < 0.3))
    lines = [
        " ".join([f"{row % 3}", *(f"{c}:{float(features[row, c])!r}" for c in features[row].indices)])
        for row in range(num_rows)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascadexml.formats.matrix_lines._LINES_AT_ONCE", block)
        path = Path(folder) / "x.txt"
        path.write_text(f"{num_rows} {num_columns} 3\n" + "\n".join(lines) + "\n")
        found = read_matrix_lines(path, [])
    assert (found.features != features.astype(np.float32)).nnz == 0
    assert found.labels.numbers.tolist() == [row % 3 for row in range(num_rows)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"train.txt": "4 4 5\n3 0:1\n 1:2\n0 0:1\n"},
            r"train\.txt:1: the header says 4 documents, but 3 lines follow",
        ),
        ({"train.txt": "3 4 5\n3 0:1\n5 1:2\n0 0:1\n"}, r"train\.txt:3: label 5 is out of range: .* 5 labels"),
        ({"train.txt": "3 4 5\n3 0:1\n1 1:2 4:1\n0 0:1\n"}, r"train\.txt:3: feature 4 is out of range: .* 4 features"),
        ({"train.txt": "3 4 5\n3 0:1\n1 1:2 3\n0 0:1\n"}, r"train\.txt:3: '3' is not feature:value"),
        ({"train.txt": "3 4 5\n3 0:1\n1 1:nan\n0 0:1\n"}, r"train\.txt:3: '1:nan' is not feature:value"),
        ({"train.txt": "3 4 5\n3 0:1\n1,,2 1:1\n0 0:1\n"}, r"train\.txt:3: '1,,2' is not a list of labels"),
        ({"train.txt": "3 4 5\n3 0:1\n1;2 1:1\n0 0:1\n"}, r"train\.txt:3: '1;2' is not a list of labels"),
        ({"train_texts.txt": "one\n"}, r"train\.txt has 3 rows, but the train part has 1 documents"),
        ({"test.txt": "1 4 6\n4 2:1\n"}, "the headers disagree on the number of labels: 5 in train, 6 in test"),
        (
            {"filter_labels_test.txt": "0 5\n"},
            r"filter_labels_test\.txt:1: label 5 is out of range: there are 5 labels",
        ),
        ({"filter_labels_test.txt": "0 x\n"}, r"filter_labels_test\.txt:1: label 'x' is not a column number"),
        ({"train.txt": "3 4 5\n 0:1\n 1:2\n 0:1\n"}, "no document of train has a label"),
        ({"dev_texts.txt": "x\n"}, r"dev_texts\.txt has no labels: neither dev_labels\.txt .* nor dev\.txt"),
    ],
)
def test_bad_header_files(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corpus(write(tmp_path, {**HEADER, **files}))


@pytest.mark.parametrize("name", ["train.txt", "amazon_train.txt", "train_v1.txt", "test.txt"])
def test_features_without_texts(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, {name: HEADER["train.txt"]}) / name
    wanted = "test_texts" if name == "test.txt" else "train_texts"
    for read in (read_corpus, read_documents):
        for source in (path, tmp_path):
            with pytest.raises(ValueError, match=rf"{name} holds no texts.* put {wanted}\.txt beside it"):
                read(source)


# --- trn.json ---


def test_xc_json(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**JSON, **NAMES, "filter_labels_test.txt": "0 4\n0 1\n"}))
    assert corpus.train is not None and corpus.train.row_ids is not None and corpus.test is not None
    assert corpus.label_names is not None and corpus.test.excluded is not None
    assert list(corpus.train.texts) == ["One first", "Two"]
    assert list(corpus.train.row_ids) == ["u1", "u2"]
    assert list(corpus.label_ids) == ["0", "1", "2", "3", "4"]
    assert corpus.label_names[3] == "Name 3"
    assert label_sets(corpus, corpus.train) == [{"0", "2"}, set()]
    assert label_sets(corpus, corpus.test) == [{"1", "3"}]
    assert corpus.test.excluded.indices.tolist() == [1, 4]


def test_xc_json_without_names(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {**JSON, "filter_labels_test.txt": "0 400\n0 1\n"}))
    assert corpus.test is not None and corpus.test.excluded is not None
    assert (list(corpus.label_ids), corpus.label_names) == (["0", "1", "2"], None)
    assert corpus.test.num_unknown.tolist() == [1]
    assert corpus.test.excluded.indices.tolist() == [1]


def test_xc_json_options(tmp_path: Path) -> None:
    write(tmp_path, JSON)
    options = ReadOptions(text_column=("title",), label_column="x", label_separator=",")
    corpus = read_corpus(tmp_path / "trn.json", options)
    assert corpus.train is not None and list(corpus.train.texts) == ["One", "Two"]
    assert noted(corpus.notes, "label_column has no effect here") and noted(
        corpus.notes, "label_separator has no effect"
    )
    assert list(read_documents(tmp_path).texts) == ["third"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"trn.json": '{"title": "a", "target_ind": [5]}'}, r"trn\.json:1: label 5 is out of range: lbl\.json has 5"),
        ({"trn.json": '{"title": "a", "target_ind": ["x"]}'}, r"trn\.json:1: target_ind is \['x'\], expected a list"),
        ({"trn.json": '{"title": "a", "target_ind": [-1]}'}, r"trn\.json:1: target_ind is \[-1\]"),
        ({"lbl.json": '{"title": "a"}\n{"uid": 1}'}, r"lbl\.json:2: no title, expected the label's name"),
        ({"lbl.json": '{"title": "a\\nb"}\n'}, r"lbl\.json:1: the label's name holds a line break"),
        ({"trn.json": '{"title": "a", "target_ind": []}'}, "no document of train has a label"),
    ],
)
def test_bad_xc_json(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corpus(write(tmp_path, {**JSON, **NAMES, **files}))


def test_label_numbers_that_cannot_be_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="label number 2,000,000,000 is too large for a column number"):
        read_corpus(write(tmp_path, {"trn.json": '{"title": "a", "target_ind": [2000000000]}'}))


# --- pecos ---


def test_pecos(tmp_path: Path) -> None:
    corpus = read_corpus(pecos(tmp_path))
    assert corpus.train is not None and corpus.train.features is not None and corpus.test is not None
    assert (list(corpus.label_ids), corpus.label_names) == (["0", "1", "2"], None)
    assert list(corpus.train.texts) == ["one", "two"]
    assert label_sets(corpus, corpus.train) == [{"0", "2"}, set()]
    assert label_sets(corpus, corpus.test) == [{"1"}]
    assert corpus.train.features.nnz == 2 and corpus.test.features is None
    assert list(read_documents(tmp_path).texts) == ["three"]


def test_pecos_items_are_ids_where_they_differ(tmp_path: Path) -> None:
    corpus = read_corpus(pecos(tmp_path, "cat\nbig dog\nant\n"))
    assert list(corpus.label_ids) == ["cat", "big dog", "ant"]
    assert label_sets(corpus, corpus.test) == [{"big dog"}]


def test_pecos_items_are_names_where_they_repeat(tmp_path: Path) -> None:
    corpus = read_corpus(pecos(tmp_path, "cat\ncat\n\n"))
    assert corpus.label_names is not None
    assert list(corpus.label_ids) == ["0", "1", "2"]
    assert list(corpus.label_names) == ["cat", "cat", "2"]


def test_bad_pecos(tmp_path: Path) -> None:
    folder = pecos(tmp_path, "cat\ndog\n")
    with pytest.raises(ValueError, match=r"output-items\.txt has 2 lines, but the label matrices 3 columns"):
        read_corpus(folder)
    write(folder, {"output-items.txt": "a\nb\nc\n", "X.trn.txt": "one\n"})
    with pytest.raises(ValueError, match=r"Y\.trn\.npz has 2 rows, but the train part has 1 documents"):
        read_corpus(folder)
    pecos(folder)
    save_npz(folder / "Y.tst.npz", csr_matrix((1, 4)))
    with pytest.raises(ValueError, match="differ in their number of columns: 3 in train, 4 in test"):
        read_corpus(folder)
    (folder / "Y.tst.npz").unlink()
    with pytest.raises(ValueError, match=r"Y\.tst\.npz is missing: X\.tst\.txt needs its labels"):
        read_corpus(folder)
    arrays = {"indices": [9], "indptr": [0, 1, 1], "data": [1.0], "shape": [2, 3], "format": b"csr"}
    np.savez(folder / "Y.trn.npz", **{name: np.array(value) for name, value in arrays.items()})
    with pytest.raises(ValueError, match=r"Y\.trn\.npz: not a sparse matrix"):
        read_corpus(folder)
    np.savez(folder / "Y.trn.npz", a=np.eye(2))
    with pytest.raises(ValueError, match=r"Y\.trn\.npz: not a sparse matrix"):
        read_corpus(folder)


def test_pecos_without_texts(tmp_path: Path) -> None:
    folder = pecos(tmp_path)
    (folder / "X.trn.txt").unlink()
    (folder / "X.tst.txt").unlink()
    with pytest.raises(ValueError, match=r"Y\.trn\.npz holds no texts.* put X\.trn\.txt beside it"):
        read_corpus(folder)
