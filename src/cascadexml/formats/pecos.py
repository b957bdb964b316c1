"""pecos's folders: X.trn.txt (texts), Y.trn.npz (labels), X.tst.txt, Y.tst.npz, output-items.txt (label names)."""

from __future__ import annotations

import numpy as np

from cascadexml.formats.filters import column_number, read_excluded
from cascadexml.formats.label_lists import LabelLists
from cascadexml.formats.label_names import read_label_names
from cascadexml.formats.lines import read_lines
from cascadexml.formats.options import ReadOptions
from cascadexml.formats.raw_corpus import RawCorpus, RawPart, column_corpus
from cascadexml.formats.recognise import SHORT_NAMES, Source
from cascadexml.formats.sparse_features import check_rows, find_features, read_npz
from cascadexml.texts import Texts


def read(source: Source, options: ReadOptions, notes: list[str]) -> RawCorpus:
    texts = {part: read_lines(path, notes) for part, path in source.parts.items()}
    labels, num_columns = _read_labels(source, texts)
    features = find_features(source.folder, {part: len(texts[part]) for part in texts}, notes)
    number_of = column_number(num_columns, labels.values())
    parts = {}
    for part in texts:
        excluded = read_excluded(source.folder, part, len(texts[part]), number_of, notes)
        parts[part] = RawPart(texts[part], labels[part], None, features.get(part), excluded)
    items, names = _read_items(source, num_columns, notes)
    listed = read_label_names(source.folder, notes)
    return column_corpus(parts, num_columns, notes, items=items, names=names, listed=listed)


def _read_labels(source: Source, texts: dict[str, Texts]) -> tuple[dict[str, LabelLists], int]:
    labels = {}
    widths = {}
    for part in texts:
        path = source.folder / f"Y.{SHORT_NAMES[part]}.npz"
        if not path.exists():
            raise ValueError(f"{path} is missing: {source.parts[part].name} needs its labels, documents x labels")
        matrix = read_npz(path)
        check_rows(path, matrix.shape[0], len(texts[part]), part)
        labels[part] = LabelLists(matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64))
        widths[part] = matrix.shape[1]
    if len(set(widths.values())) > 1:
        said = ", ".join(f"{width:,} in {part}" for part, width in widths.items())
        raise ValueError(f"{source.folder}: the label matrices differ in their number of columns: {said}")
    return labels, next(iter(widths.values()))


def _read_items(source: Source, num_columns: int, notes: list[str]) -> tuple[Texts | None, Texts | None]:
    """Label ids and names: a line is both where all lines differ, else only a name, the id then its number."""
    path = source.folder / "output-items.txt"
    if not path.exists():
        return None, None
    items = read_lines(path, notes)
    if len(items) != num_columns:
        raise ValueError(f"{path} has {len(items):,} lines, but the label matrices {num_columns:,} columns")
    lines = {line for chunk in items.byte_chunks() for line in chunk}
    if len(lines) == num_columns and b"" not in lines:
        notes.append("output-items.txt: each line is its label's id")
        return items, None
    notes.append("output-items.txt: lines are names; the ids are column numbers, because lines repeat or are empty")
    return None, items
