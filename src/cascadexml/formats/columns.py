"""Which columns of a CSV, JSONL or Parquet file hold text, labels and ids: as told, else by their usual names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cascadexml.formats.options import ReadOptions

_TITLES = ("title",)
_TEXTS = ("text", "content", "abstract", "body", "description", "document", "sentence", "phrase")
_LABELS = ("labels", "label", "tags", "tag", "categories", "subjects", "classes", "targets", "target")
_IDS = ("id", "uid", "doc_id", "document_id")


@dataclass(frozen=True)
class Columns:
    text: tuple[str, ...]
    label: str | None
    id: str | None

    def all(self) -> list[str]:
        return [*self.text, *(name for name in (self.label, self.id) if name is not None)]

    def sentence(self, file: str) -> str:
        label = "" if self.label is None else f", labels from column {self.label}"
        row_id = "" if self.id is None else f", document ids from column {self.id}"
        return f"{file}: text from column {' + '.join(self.text)}{label}{row_id}"


def choose_columns(found: Sequence[str], options: ReadOptions, with_labels: bool, file: str) -> Columns:
    text = options.text_column or _usual_text(found)
    label = options.label_column or _first(found, _LABELS)
    row_id = options.id_column or _first(found, _IDS)
    columns = Columns(text, label if with_labels else None, row_id)
    if not text:
        raise ValueError(f"{file}: no text column among {_listed(found)}; name it with text_column (--text-column)")
    if with_labels and label is None:
        raise ValueError(f"{file}: no label column among {_listed(found)}; name it with label_column (--label-column)")
    missing = [name for name in columns.all() if name not in found]
    if missing:
        raise ValueError(f"{file}: no column {_listed(missing)}; the columns are {_listed(found)}")
    return columns


def looks_like_header(columns: Sequence[str]) -> bool:
    return bool(_usual_text(columns)) and _first(columns, _LABELS) is not None


def split_header(line: str) -> tuple[list[str], str]:
    """Column names and delimiter of a CSV header: the sign among TAB, comma and semicolon it has most of."""
    delimiter = max(",;\t", key=line.count)
    return [name.strip().strip('"') for name in line.split(delimiter)], delimiter


def _usual_text(found: Sequence[str]) -> tuple[str, ...]:
    """A title and the first of the usual names for a text."""
    return tuple(name for name in (_first(found, _TITLES), _first(found, _TEXTS)) if name is not None)


def _first(found: Sequence[str], usual: tuple[str, ...]) -> str | None:
    return next((name for name in usual if name in found), None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(str(name) for name in names) if names else "(none)"
