"""The XC repository's trn.json and tst.json: JSON lines with title, content, target_ind, uid; names in lbl.json."""

from __future__ import annotations

from pathlib import Path

from cascadexml.formats import jsonl
from cascadexml.formats.columns import choose_columns
from cascadexml.formats.filters import column_number, read_excluded
from cascadexml.formats.label_lists import LabelListsBuilder, label_id
from cascadexml.formats.label_names import read_label_names
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import RawCorpus, RawPart, column_corpus
from cascadexml.formats.recognise import Source
from cascadexml.formats.tables import joined_text
from cascadexml.texts import Texts, TextsBuilder, encode

_LABELS = "target_ind"


def read(source: Source, options: ReadOptions, notes: list[str]) -> RawCorpus:
    names = None if source.alone else _read_names(source.folder, notes)
    num_columns = None if names is None else len(names)
    parts = {part: _read_part(path, options, num_columns, notes) for part, path in source.parts.items()}
    if source.alone:
        return column_corpus(parts, num_columns, notes)
    number_of = column_number(num_columns, [raw.labels for raw in parts.values()])
    for part, raw in parts.items():
        excluded = read_excluded(source.folder, part, len(raw), number_of, notes)
        parts[part] = RawPart(raw.texts, raw.labels, raw.row_ids, None, excluded)
    return column_corpus(parts, num_columns, notes, names=names, listed=read_label_names(source.folder, notes))


def _read_part(path: Path, options: ReadOptions, num_columns: int | None, notes: list[str]) -> RawPart:
    columns = choose_columns(jsonl.column_names(path), options, False, str(path))
    texts, row_ids, labels = TextsBuilder(), TextsBuilder(), LabelListsBuilder()
    for where, row in jsonl.read_rows(path, notes):
        try:
            texts.append(joined_text(row, columns.text))
            labels.append(_column_numbers(row.get(_LABELS), num_columns))
            if columns.id is not None:
                row_ids.append(b"" if row.get(columns.id) is None else label_id(row[columns.id]))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    notes.append(columns.sentence(path.name))
    return RawPart(texts.finish(), labels.finish(), row_ids.finish() if columns.id else None)


def _column_numbers(value: object, num_columns: int | None) -> list[int]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(type(number) is int and 0 <= number < 1 << 31 for number in value):
        raise ValueError(f"{_LABELS} is {value!r:.80}, expected a list of column numbers")
    if num_columns is not None and value and max(value) >= num_columns:
        raise ValueError(f"label {max(value)} is out of range: lbl.json has {num_columns:,} labels, counted from 0")
    return value


def _read_names(folder: Path, notes: list[str]) -> Texts | None:
    found = [folder / name for name in ("lbl.json", "lbl.json.gz") if (folder / name).exists()]
    if not found:
        return None
    names = TextsBuilder()
    for where, row in jsonl.read_rows(found[0], notes):
        name = row.get("title")
        if not isinstance(name, str):
            raise ValueError(f"{where}: no title, expected the label's name there")
        if "\n" in name:
            raise ValueError(f"{where}: the label's name holds a line break; names are written one a line")
        names.append(encode(name) or str(len(names)).encode())
    notes.append(f"{found[0].name}: names of {len(names):,} labels")
    return names.finish()
