"""From a recognised source to its reader."""

from __future__ import annotations

from cascadexml.formats import label_lines, matrix_with_texts, pecos, tables, xc_json
from cascadexml.formats.lines import read_lines
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import RawCorpus
from cascadexml.formats.recognise import Source
from cascadexml.texts import Texts

_READERS = {
    "label lines": label_lines.read,
    "matrix lines": matrix_with_texts.read,
    "pecos": pecos.read,
    "xc json": xc_json.read,
    "table": tables.read,
}
_USED_OPTIONS = {
    "label lines": {"label_separator"},
    "xc json": {"text_column", "id_column"},
    "table": {"label_separator", "text_column", "label_column", "id_column"},
}


def read_raw(source: Source, options: ReadOptions, notes: list[str]) -> RawCorpus:
    """Every part, with labels."""
    if source.kind == "plain":
        path = next(iter(source.parts.values()))
        raise ValueError(
            f"{path} is text without labels; give the folder, with train_texts.txt and train_labels.txt, "
            "or a file that holds both: JSONL, CSV, Parquet, or text TAB <uri> <uri>"
        )
    notes.extend(source.notes)
    for name in ("label_separator", "text_column", "label_column", "id_column"):
        if getattr(options, name) and name not in _USED_OPTIONS.get(source.kind, ()):
            notes.append(f"{name} has no effect here: the data are {source.kind}")
    return _READERS[source.kind](source, options, notes)


def read_texts(source: Source, part: str, options: ReadOptions, notes: list[str]) -> tuple[Texts, Texts | None]:
    """One part's texts and the documents' own ids; labels are not looked at."""
    path = source.parts[part]
    if source.kind in ("xc json", "table"):
        table = tables.read_table(path, options, None, notes)
        return table.texts, table.row_ids
    return read_lines(path, notes), None
