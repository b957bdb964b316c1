"""CSV, JSONL, Parquet and Annif's short-text corpora: formats with columns."""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_files import label_sets, noted, write

from cascadexml.corpus import ReadOptions, read_corpus, read_documents
from cascadexml.formats.comma_separated import read_rows

JSONL = '{"text": "one", "labels": ["big cat", "a"]}\n{"text": "two\\nlines", "labels": []}\n{"labels": ["a", "a"]}\n'
CSV = 'id,title,text,labels\n7,One,"first, ""quoted""",a b\n8,,"two\nlines",\n9,Three,,a\n'
ANNIF = "one\t<http://x/1> <http://x/2>\ntwo\n\t<http://x/1>\n"


def test_jsonl_with_lists(tmp_path: Path) -> None:
    path = write(tmp_path, {"data.jsonl": JSONL}) / "data.jsonl"
    corpus = read_corpus(path)
    assert corpus.train is not None
    assert list(corpus.train.texts) == ["one", "two\nlines", ""]
    assert label_sets(corpus, corpus.train) == [{"a", "big cat"}, set(), {"a"}]
    assert noted(corpus.notes, "data.jsonl: text from column text, labels from column labels")
    assert corpus.test is None and corpus.train.row_ids is None


def test_jsonl_with_strings_numbers_and_nulls(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "x y"}, {"text": None, "label": None}, {"text": "c", "label": ""}]
    lines = "\n".join(json.dumps(row) for row in rows)
    corpus = read_corpus(write(tmp_path, {"train.jsonl.gz": lines, "test.jsonl": '{"text": "t", "label": 3}\n\n'}))
    assert label_sets(corpus, corpus.train) == [{"x", "y"}, set(), set()]
    assert corpus.test is not None and corpus.test.num_unknown.tolist() == [1]
    assert noted(corpus.notes, "test.jsonl: 1 blank lines")


def test_jsonl_strings_with_tab(tmp_path: Path) -> None:
    rows = [{"text": "a", "tags": "x y\tz"}, {"text": "b", "tags": "x y"}]
    corpus = read_corpus(write(tmp_path, {"train.jsonl": "\n".join(map(json.dumps, rows))}))
    assert label_sets(corpus, corpus.train) == [{"x y", "z"}, {"x y"}]


def test_csv(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {"only.csv": CSV, "labels.tsv": "a\tThe first\n"}))
    assert corpus.train is not None and corpus.train.row_ids is not None and corpus.label_names is not None
    assert list(corpus.train.texts) == ['One first, "quoted"', "two\nlines", "Three"]
    assert list(corpus.train.row_ids) == ["7", "8", "9"]
    assert label_sets(corpus, corpus.train) == [{"a", "b"}, set(), {"a"}]
    assert list(corpus.label_names) == ["The first", "b"]


def test_columns_as_told(tmp_path: Path) -> None:
    path = write(tmp_path, {"x.csv": "﻿key;head;main;what\r\nk1;A;B;x,y\r\n"}) / "x.csv"
    options = ReadOptions(text_column=("main", "head"), label_column="what", id_column="key", label_separator=",")
    corpus = read_corpus(path, options)
    assert corpus.train is not None and corpus.train.row_ids is not None
    assert (list(corpus.train.texts), list(corpus.train.row_ids)) == (["B A"], ["k1"])
    assert label_sets(corpus, corpus.train) == [{"x", "y"}]


def test_tsv_with_header(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, {"train.tsv": "text\tlabel\none, two\ta b\n"}))
    assert corpus.train is not None and corpus.train.texts[0] == "one, two"
    assert label_sets(corpus, corpus.train) == [{"a", "b"}]


def test_long_cells_and_a_limit_put_back(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    text = "x" * 200_000
    corpus = read_corpus(write(tmp_path, {"train.csv": f"text,label\n{text},a\n\n"}))
    assert corpus.train is not None and list(corpus.train.texts) == [text]
    assert csv.field_size_limit() == before
    assert noted(corpus.notes, "1 blank lines between rows")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\ufeff"))


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_any_csv_comes_back(rows: list[tuple[str, str]]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_bytes(file.getvalue().encode())
        assert [tuple(row.values()) for _, row in read_rows(path, [])] == rows


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"uid": [5, 6], "text": ["a\nb", None], "labels": [["x y", "z"], None]})
    parquet.write_table(table, tmp_path / "train.parquet")
    parquet.write_table(pyarrow.table({"text": ["t"], "labels": ["z"]}), tmp_path / "test.parquet")
    corpus = read_corpus(tmp_path)
    assert corpus.train is not None and corpus.train.row_ids is not None
    assert list(corpus.train.texts) == ["a\nb", ""]
    assert list(corpus.train.row_ids) == ["5", "6"]
    assert label_sets(corpus, corpus.train) == [{"x y", "z"}, set()]
    assert label_sets(corpus, corpus.test) == [{"z"}]


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs pyarrow: pip install cascadexml\[parquet\]"):
        read_corpus(write(tmp_path, {"train.parquet": b"PAR1...."}))


def test_broken_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"train\.parquet: not a whole Parquet file"):
        read_corpus(write(tmp_path, {"train.parquet": b"PAR1...."}))


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz", "train.txt", "some.tsv.gz"])
def test_annif(tmp_path: Path, name: str) -> None:
    corpus = read_corpus(write(tmp_path, {name: ANNIF, "labels.tsv": "<http://x/1>\tOne\n"}))
    assert corpus.train is not None and corpus.label_names is not None
    assert list(corpus.train.texts) == ["one", "two", ""]
    assert list(corpus.label_ids) == ["http://x/1", "http://x/2"]
    assert label_sets(corpus, corpus.train) == [{"http://x/1", "http://x/2"}, set(), {"http://x/1"}]
    assert list(corpus.label_names) == ["One", "http://x/2"]
    assert list(read_documents(tmp_path).texts) == ["one", "two", ""]


def test_documents_of_tables(tmp_path: Path) -> None:
    write(
        tmp_path, {"a.csv": "id,text\n1,one\n2,\n", "b.csv": "text\none\n\nthree\n", "c.jsonl": JSONL, "d.tsv": ANNIF}
    )
    with_ids = read_documents(tmp_path / "a.csv")
    assert with_ids.row_ids is not None
    assert (list(with_ids.texts), list(with_ids.row_ids)) == (["one", ""], ["1", "2"])
    assert list(read_documents(tmp_path / "b.csv").texts) == ["one", "", "three"]
    assert list(read_documents(tmp_path / "c.jsonl").texts) == ["one", "two\nlines", ""]
    assert list(read_documents(tmp_path / "d.tsv").texts) == ["one", "two", ""]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.jsonl", JSONL + "{oops\n", r"train\.jsonl:4: not valid JSON"),
        ("train.jsonl", JSONL + "[1]\n", r"train\.jsonl:4: a JSON list, expected an object"),
        ("train.jsonl", "oops\n", r"train\.jsonl:1: not valid JSON"),
        ("train.json", '[{"text": "a"}]', r"train\.json is one JSON array, expected JSON Lines"),
        ("train.jsonl", "", r"train\.jsonl is empty"),
        (
            "train.jsonl",
            '{"words": "a", "labels": []}\n',
            r"no text column among words, labels; name it .*--text-column",
        ),
        ("train.jsonl", '{"text": "a", "sorts": []}\n', r"no label column among text, sorts; name it .*--label-column"),
        ("train.jsonl", '{"text": 3, "labels": []}\n', r"train\.jsonl:1: text column text holds 3 \(int\)"),
        (
            "train.jsonl",
            JSONL + '{"text": "a", "labels": "b"}',
            r"jsonl:4: the labels are strings, but lists in the rows",
        ),
        ("train.jsonl", '{"text": "a", "labels": [1.5]}', r"jsonl:1: label 1\.5 is a float, expected a string"),
        ("train.jsonl", '{"text": "a", "labels": [true]}', r"jsonl:1: label True is a bool"),
        ("train.jsonl", '{"text": "a", "labels": {"x": 1}}', r"jsonl:1: label \{'x': 1\} is a dict"),
        ("train.jsonl", '{"text": "a", "labels": ["x\\ny"]}', r"jsonl:1: label 'x\\ny' holds a line break"),
        ("train.jsonl", '{"text": "a", "labels": [""]}', r"jsonl:1: an empty string stands as a label"),
        ("train.csv", "", r"train\.csv is empty"),
        ("train.csv", CSV + "1,2,3\n", r"train\.csv:6: 3 cells, but the header has 4"),
        ("train.csv", CSV + '1,"2\n,3,4\n', r"train\.csv:6: not valid CSV .* a quote that is not closed"),
        ("train.csv", 'text,"la\nbel"\na,b\n', r"train\.csv:1: not a CSV header"),
        ("train.csv", "text,text,label\na,b,c\n", r"train\.csv:1: column text stands twice"),
        ("train.csv", "text,label\na,\"['b', 'c']\"\n", r"train\.csv:2: the labels are a list written as a string"),
        ("train.csv", 'text,label\na,"b\nc"\n', r"train\.csv, document 1: label 'b\\nc' holds a line break"),
        ("train.tsv", ANNIF + "x\tno-uri\n", r"train\.tsv:4: subject 'no-uri' is not <uri>"),
        ("train.csv", "text,label\n", "the train part has no documents"),
        ("train.csv", "text,label\na,\n", "no document of train has a label"),
    ],
)
def test_bad_tables(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corpus(write(tmp_path, {name: content}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReadOptions(text_column=("title", "main")), "no column main; the columns are id, title, text, labels"),
        (ReadOptions(label_column="tag"), "no column tag; the columns are"),
        (ReadOptions(id_column="key"), "no column key; the columns are"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, options: ReadOptions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corpus(write(tmp_path, {"train.csv": CSV}), options)


def test_two_files_for_one_part(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"both train\.jsonl and train\.csv could be train"):
        read_corpus(write(tmp_path, {"train.csv": CSV, "train.jsonl": JSONL}))
