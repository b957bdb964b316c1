"""Formats with columns (CSV, JSONL, Parquet, Annif's): rows in, texts, ids and labels out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascadexml.formats import annif, comma_separated, jsonl, parquet
from cascadexml.formats.columns import Columns, choose_columns
from cascadexml.formats.label_lists import (
    LabelLists,
    LabelListsBuilder,
    Vocabulary,
    choose_separator,
    label_id,
    number_list,
)
from cascadexml.formats.label_names import read_label_names
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import RawCorpus, RawPart
from cascadexml.formats.recognise import Source, file_kind
from cascadexml.formats.whole_number_labels import split_labels
from cascadexml.texts import Texts, TextsBuilder, encode


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of one file that matter here."""

    texts: Texts
    row_ids: Texts | None
    labels: LabelLists | Texts | None
    """numbers where cells are lists, Texts where they are strings yet to be split"""


def read(source: Source, options: ReadOptions, notes: list[str]) -> RawCorpus:
    vocabulary = Vocabulary()
    tables = {part: read_table(path, options, vocabulary, notes) for part, path in source.parts.items()}
    cells = [table.labels for table in tables.values() if isinstance(table.labels, Texts)]
    separator = choose_separator(cells, options.label_separator, notes) if cells else b" "
    parts = {}
    for part, table in tables.items():
        labels = table.labels
        if isinstance(labels, Texts):
            labels = split_labels(labels, separator, vocabulary, source.parts[part].name)
        assert labels is not None
        parts[part] = RawPart(table.texts, labels, table.row_ids)
    listed = None if source.alone else read_label_names(source.folder, notes, strip=annif.bare_uri)
    return RawCorpus(parts, vocabulary.ids(), listed=listed, notes=notes)


def read_table(path: Path, options: ReadOptions, vocabulary: Vocabulary | None, notes: list[str]) -> Table:
    """One file; without a vocabulary its labels are not looked at."""
    columns, rows = open_rows(path, options, vocabulary is not None, notes)
    texts = TextsBuilder()
    row_ids = TextsBuilder()
    labels = _LabelColumn(Vocabulary() if vocabulary is None else vocabulary, options.label_separator)
    for where, row in rows:
        try:
            texts.append(joined_text(row, columns.text))
            if columns.id is not None:
                row_ids.append(b"" if row.get(columns.id) is None else label_id(row[columns.id]))
            if columns.label is not None:
                labels.append(row.get(columns.label))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    return Table(
        texts=texts.finish(),
        row_ids=None if columns.id is None else row_ids.finish(),
        labels=None if columns.label is None else labels.finish(),
    )


def open_rows(
    path: Path, options: ReadOptions, with_labels: bool, notes: list[str]
) -> tuple[Columns, Iterator[tuple[str, dict[str, Any]]]]:
    kind = file_kind(path, options)
    if kind == "annif":
        notes.append(f"{path.name}: Annif's short-text format, text TAB <uri> <uri>")
        return Columns((annif.TEXT,), annif.LABELS if with_labels else None, None), annif.read_rows(path, notes)
    if kind == "csv":
        columns = choose_columns(comma_separated.column_names(path), options, with_labels, str(path))
        rows = comma_separated.read_rows(path, notes)
    elif kind == "parquet":
        columns = choose_columns(parquet.column_names(path), options, with_labels, str(path))
        rows = parquet.read_rows(path, columns.all())
    else:
        assert kind in ("jsonl", "xc json"), kind
        columns = choose_columns(jsonl.column_names(path), options, with_labels, str(path))
        rows = jsonl.read_rows(path, notes)
    notes.append(columns.sentence(path.name))
    return columns, rows


def joined_text(row: dict[str, Any], names: tuple[str, ...]) -> bytes:
    """The text columns with a space between; those without a value take no part."""
    pieces = []
    for name in names:
        value = row.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"text column {name} holds {value!r:.60} ({type(value).__name__}), expected a string")
        if value:
            pieces.append(value)
    return encode(" ".join(pieces))


class _LabelColumn:
    """A column of lists, or of strings; the first cell with a value decides which."""

    def __init__(self, vocabulary: Vocabulary, separator: str | None) -> None:
        self._vocabulary = vocabulary
        self._separator = separator
        self._lists = LabelListsBuilder()
        self._cells = TextsBuilder()
        self._holds: str | None = None

    def append(self, value: object) -> None:
        if value is None:
            self._lists.append([])
            self._cells.append(b"")
        elif isinstance(value, str):
            self._expect("strings")
            self._refuse_written_list(value)
            self._lists.append([])
            self._cells.append(encode(value))
        else:
            self._expect("lists")
            labels = value if isinstance(value, list) else [value]
            self._lists.append(number_list(labels, self._vocabulary))
            self._cells.append(b"")

    def finish(self) -> LabelLists | Texts:
        return self._cells.finish() if self._holds == "strings" else self._lists.finish()

    def _expect(self, kind: str) -> None:
        if self._holds not in (None, kind):
            raise ValueError(f"the labels are {kind}, but {self._holds} in the rows before; write all in one way")
        self._holds = kind

    def _refuse_written_list(self, value: str) -> None:
        if self._separator is None and value.startswith(("['", '["')) and value.endswith("]"):
            raise ValueError(
                f"the labels are a list written as a string, {value:.60}; write them with a space or TAB between, "
                "name a label_separator, or use JSONL, whose lists are lists"
            )
