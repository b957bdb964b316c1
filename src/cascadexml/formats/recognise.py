"""What kind of data lie at a path: looks at a folder's names and at files' first lines."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from cascadexml.formats.columns import looks_like_header, split_header
from cascadexml.formats.lines import first_lines
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import PART_NAMES

HEADER = re.compile(rb"\s*\d+\s+\d+\s+\d+\s*")
_PAIR = rb"\d+:[-+.\deE]+"
_MATRIX_LINE = re.compile(rb"(?:[\d,]* )?" + _PAIR + rb"(?: " + _PAIR + rb")* ?")
_ANNIF_LINE = re.compile(rb"[^\t]*\t *<[^>\s]+>(?: +<[^>\s]+>)* *")
_EXPECTED = (
    "expected train_texts.txt + train_labels.txt; or trn.json; or X.trn.txt + Y.trn.npz; or train.txt (N D L) + "
    "train_texts.txt; or train.jsonl, .csv, .tsv or .parquet; or one such file alone"
)
_TABLE_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt")
SHORT_NAMES = {"train": "trn", "dev": "dev", "test": "tst"}


@dataclass(frozen=True)
class Source:
    """Where each part's documents lie, and which reader knows the format."""

    kind: str
    """label lines, matrix lines, xc json, pecos, table, or plain (documents alone, one a line)"""
    folder: Path
    parts: dict[str, Path]
    """the file with the documents of each part"""
    alone: bool = False
    """one file, given by itself: nothing beside it is read"""
    notes: tuple[str, ...] = ()
    """files that look like data but are not read"""


def recognise(path: Path, options: ReadOptions) -> Source:
    if path.is_dir():
        found = _recognise_folder(path, options)
        return replace(found, notes=_unread(found))
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; {_EXPECTED}")
    kind = file_kind(path, options)
    if kind == "matrix":
        part = next((part for part in PART_NAMES if part in path.name), "train")
        raise ValueError(_texts_missing(path, path.with_name(f"{part}_texts.txt")))
    reader = {"xc json": "xc json", "plain": "plain"}.get(kind, "table")
    return Source(reader, path.parent, {"train": path}, alone=True)


def file_kind(path: Path, options: ReadOptions) -> str:
    """matrix, parquet, xc json, jsonl, annif, csv, or plain: text of which nothing more is known."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PAR1":
        return "parquet"
    if magic[:2] == b"PK":
        raise ValueError(f"{path} is an archive (.npz or .zip), expected documents; give the folder it lies in")
    lines = first_lines(path)
    if _is_matrix(lines):
        return "matrix"
    json_kind = _json_kind(lines, path)
    if json_kind:
        return json_kind
    if any(_ANNIF_LINE.fullmatch(line) for line in lines):
        return "annif"
    if _is_csv(lines, path, options):
        return "csv"
    return "plain"


def _recognise_folder(folder: Path, options: ReadOptions) -> Source:
    present = {entry.name for entry in folder.iterdir()}
    if not present:
        raise ValueError(f"{folder} is an empty folder; {_EXPECTED}")
    texts = _first_of_each(folder, present, ("{part}_raw_texts.txt", "{part}_texts.txt"))
    if texts:
        with_lines = any(f"{part}_labels.txt" in present for part in PART_NAMES)
        return Source("label lines" if with_lines or not _matrices(folder) else "matrix lines", folder, texts)
    json_parts = _first_of_each(folder, present, ("{short}.json", "{short}.json.gz"))
    if json_parts:
        return Source("xc json", folder, json_parts)
    pecos = _first_of_each(folder, present, ("X.{short}.txt",))
    if pecos:
        return Source("pecos", folder, pecos)
    _refuse_without_texts(folder, present)
    return _recognise_tables(folder, options)


def _first_of_each(folder: Path, present: set[str], patterns: tuple[str, ...]) -> dict[str, Path]:
    parts = {}
    for part in PART_NAMES:
        names = [pattern.format(part=part, short=SHORT_NAMES[part]) for pattern in patterns]
        found = [name for name in names if name in present]
        if found:
            parts[part] = folder / found[0]
    return parts


def _matrices(folder: Path) -> list[Path]:
    return [path for part in PART_NAMES if (path := matrix_file(folder, part))]


def matrix_file(folder: Path, part: str) -> Path | None:
    """The file of `l1,l2 f:v f:v` lines of a part, with or without the header line, where there is one."""
    candidates = [folder / f"{part}.txt", folder / f"{part}_v1.txt", *sorted(folder.glob(f"*_{part}.txt"))]
    for path in candidates:
        if path.is_file() and _is_matrix(first_lines(path)):
            return path
    return None


def _is_matrix(lines: list[bytes]) -> bool:
    """A header followed by something like features, or a first line of nothing but features."""
    if not lines:
        return False
    if HEADER.fullmatch(lines[0]):
        return all(b":" in line or not line.strip() for line in lines[1:3])
    return _MATRIX_LINE.fullmatch(lines[0]) is not None


def _json_kind(lines: list[bytes], path: Path) -> str | None:
    line = next((line for line in lines if line.strip()), b"").lstrip()
    named_json = any(ending in (".json", ".jsonl", ".ndjson") for ending in path.suffixes)
    if line.startswith(b"[") and named_json:
        raise ValueError(f"{path} is one JSON array, expected JSON Lines: one object a line")
    if not line.startswith(b"{"):
        return "jsonl" if named_json else None
    try:
        keys = json.loads(line.decode("utf-8", "replace"))
    except json.JSONDecodeError:
        return "jsonl" if named_json else None
    return "xc json" if "target_ind" in keys else "jsonl"


def _is_csv(lines: list[bytes], path: Path, options: ReadOptions) -> bool:
    if any(ending in (".csv", ".tsv") for ending in path.suffixes):
        return True
    columns = split_header(lines[0].decode("utf-8", "replace"))[0] if lines else []
    if options.text_column:
        return set(columns).issuperset(options.text_column)
    return looks_like_header(columns)


def _recognise_tables(folder: Path, options: ReadOptions) -> Source:
    parts = {}
    for part in PART_NAMES:
        found = [
            path
            for ending in _TABLE_ENDINGS
            for path in (folder / f"{part}{ending}", folder / f"{part}{ending}.gz")
            if path.is_file()
        ]
        if len(found) > 1:
            raise ValueError(f"{folder}: both {found[0].name} and {found[1].name} could be {part}; keep one of them")
        if found:
            parts[part] = found[0]
    if not parts:
        parts = _lone_table(folder)
    for path in parts.values():
        if file_kind(path, options) == "plain":
            raise ValueError(f"{path}: text without labels; {_EXPECTED}")
    kinds = {file_kind(path, options) for path in parts.values()}
    if "xc json" in kinds and len(kinds) > 1:
        raise ValueError(f"{folder}: {', '.join(sorted(kinds))} files side by side; give all parts one format")
    return Source("xc json" if "xc json" in kinds else "table", folder, parts)


def _lone_table(folder: Path) -> dict[str, Path]:
    tables = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "labels.tsv" and path.name.removesuffix(".gz").endswith(_TABLE_ENDINGS[:-1])
    ]
    if len(tables) > 1:
        several = ", ".join(path.name for path in tables[:10])
        raise ValueError(
            f"{folder}: any of {several} could be the data; name them train, dev and test, as in train.csv"
        )
    if not tables:
        shown = ", ".join(sorted(entry.name for entry in folder.iterdir())[:10])
        raise ValueError(f"{folder} holds no data this program knows, only {shown}; {_EXPECTED}")
    return {"train": tables[0]}


def _unread(found: Source) -> tuple[str, ...]:
    read = {path.name for path in found.parts.values()}
    present = sorted(entry.name for entry in found.folder.iterdir())
    notes = [f"{name} is not read; if it is for validation, name it dev" for name in present if name.startswith("val")]
    others = [name for name in present if name.endswith("_texts.txt") and name not in read]
    notes += [f"{name} is not read: raw texts lie beside it" for name in others if name.startswith(PART_NAMES)]
    return tuple(notes)


def _refuse_without_texts(folder: Path, present: set[str]) -> None:
    """Labels or features whose texts are nowhere: names the file wanted."""
    for part in PART_NAMES:
        short = SHORT_NAMES[part]
        found = [name for name in (f"Y.{short}.npz", f"X.{short}.npz", f"X.{short}.tfidf.npz") if name in present]
        if found:
            raise ValueError(_texts_missing(folder / found[0], folder / f"X.{short}.txt"))
        path = folder / f"{part}_labels.txt" if f"{part}_labels.txt" in present else matrix_file(folder, part)
        if path is not None:
            raise ValueError(_texts_missing(path, folder / f"{part}_texts.txt"))


def _texts_missing(path: Path, wanted: Path) -> str:
    return (
        f"{path} holds no texts, which are what is read: put {wanted.name} beside it, one document a line, in its order"
    )
