"""The labels of each document as numbers, whatever the ids look like: lines, cells or lists in, LabelLists out."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cascadexml.texts import Texts, TextsBuilder, encode


class Vocabulary(dict[bytes, int]):
    """Numbers label ids in the order they are first asked for."""

    def __missing__(self, label: bytes) -> int:
        if b"\n" in label:
            raise ValueError(f"label {_shown(label)} holds a line break; label ids are written one a line")
        if not label:
            raise ValueError("an empty string stands as a label; leave it out, or give it a name")
        self[label] = number = len(self)
        return number

    def ids(self) -> Texts:
        builder = TextsBuilder()
        for label in self:
            builder.append(label)
        return builder.finish()


@dataclass(frozen=True, eq=False)
class LabelLists:
    """Label numbers document by document, as the file has them: any order, repeated ones too."""

    numbers: np.ndarray
    """int32: the numbers of every document's labels, one document after the other"""
    offsets: np.ndarray
    """int64, one more than there are documents"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, rows: np.ndarray) -> LabelLists:
        lengths = np.diff(self.offsets)
        row_of = np.full(len(self), -1, dtype=np.int64)
        row_of[rows] = np.arange(len(rows))
        assert len(rows) < 2 or np.all(np.diff(rows) > 0), "rows are taken in the file's order"
        kept = np.repeat(row_of >= 0, lengths)
        return LabelLists(self.numbers[kept], np.concatenate([[0], np.cumsum(lengths[rows])]).astype(np.int64))


class LabelListsBuilder:
    """Collects documents' label numbers."""

    def __init__(self) -> None:
        self._numbers = array("i")
        self._offsets = array("q", [0])

    def append(self, numbers: Iterable[int]) -> None:
        self._numbers.extend(numbers)
        self._offsets.append(len(self._numbers))

    def finish(self) -> LabelLists:
        return LabelLists(np.frombuffer(self._numbers, dtype=np.int32), np.frombuffer(self._offsets, dtype=np.int64))


def choose_separator(cells: Iterable[Texts], given: str | None, notes: list[str]) -> bytes:
    """What stands between labels: as given, else TAB where any line of any part has one, else spaces."""
    if given is not None:
        # a shell hands on the two characters \\t as they are
        given = given.replace("\\t", "\t")
        notes.append(f"labels split at {given!r}, as given")
        return encode(given)
    if any(_has_tab(part) for part in cells):
        notes.append("labels split at TAB, because label lines hold TABs")
        return b"\t"
    notes.append("labels split at spaces (no label line holds a TAB)")
    return b" "


def split_cells(cells: Texts, separator: bytes, vocabulary: Vocabulary, where: str) -> LabelLists:
    """Each line's labels, numbered. Where TAB or another sign separates, spaces around a label don't count."""
    builder = LabelListsBuilder()
    number_of = vocabulary.__getitem__
    row = 0
    for chunk in cells.byte_chunks():
        for cell in chunk:
            row += 1
            pieces = cell.split(separator)
            if separator != b" ":
                pieces = [piece.strip(b" ") for piece in pieces]
            try:
                builder.append(map(number_of, filter(None, pieces)))
            except ValueError as error:
                raise ValueError(f"{where}, document {row:,}: {error}") from None
    return builder.finish()


def number_list(labels: Iterable[object], vocabulary: Vocabulary) -> list[int]:
    """The numbers of labels that come as a list of names or whole numbers."""
    return [vocabulary[label_id(label)] for label in labels]


def label_id(label: object) -> bytes:
    if isinstance(label, str):
        return encode(label)
    if isinstance(label, int | np.integer) and not isinstance(label, bool):
        return str(label).encode()
    raise ValueError(f"label {label!r} is a {type(label).__name__}, expected a string or a whole number")


def _has_tab(cells: Texts) -> bool:
    block = 1 << 26
    return any(ord("\t") in cells.buffer[start : start + block] for start in range(0, len(cells.buffer), block))


def _shown(label: bytes) -> str:
    text = repr(label.decode("utf-8"))
    return text if len(text) <= 80 else f"{text[:77]}..."
