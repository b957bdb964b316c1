"""Lines of `l1,l2 f:v f:v`, under a header `N D L` (the XC repository) or without one (AttentionXML's files)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.formats.label_lists import LabelLists, LabelListsBuilder
from cascadexml.formats.lines import first_lines, numbered_lines
from cascadexml.formats.recognise import HEADER

_LINES_AT_ONCE = 4096
_LABELS = re.compile(rb"\d+(?:,\d+)*")
_NUMBER = rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PAIR = re.compile(rb"\d+:" + _NUMBER)
_PAIRS = re.compile(rb"(?:\d+:" + _NUMBER + rb"\s*(?: |$))*")


@dataclass(frozen=True, eq=False)
class MatrixLines:
    """One file's labels and features."""

    labels: LabelLists
    features: csr_matrix
    num_columns: int | None
    """L of the header; None without one"""


def read_matrix_lines(path: Path, notes: list[str]) -> MatrixLines:
    header = _read_header(path)
    reader = _Reader(path, header)
    for block in _blocks(path, header is not None, notes):
        reader.read(block)
    return reader.finish()


def _read_header(path: Path) -> tuple[int, int, int] | None:
    lines = first_lines(path, limit=1)
    if not lines or not HEADER.fullmatch(lines[0]):
        return None
    num_rows, num_features, num_labels = map(int, lines[0].split())
    return num_rows, num_features, num_labels


def _blocks(path: Path, with_header: bool, notes: list[str]) -> Iterator[list[tuple[int, bytes]]]:
    lines = numbered_lines(path, notes)
    if with_header:
        next(lines)
    block = []
    for numbered in lines:
        block.append(numbered)
        if len(block) == _LINES_AT_ONCE:
            yield block
            block = []
    yield block


class _Reader:
    """Grows the arrays of one file."""

    def __init__(self, path: Path, header: tuple[int, int, int] | None) -> None:
        self._path = path
        self._header = header
        self._labels = LabelListsBuilder()
        self._columns = array("i")
        self._values = array("f")
        self._ends = array("q", [0])

    def read(self, block: list[tuple[int, bytes]]) -> None:
        pairs = []
        for number, line in block:
            try:
                labels, features = _split(line)
                self._labels.append(self._checked_labels(labels))
            except ValueError as error:
                raise ValueError(f"{self._path}:{number}: {error}") from None
            self._ends.append(self._ends[-1] + features.count(b":"))
            pairs.append(features)
        # all the pairs of the block in one go: "0:0.5 3:1" and so on are twice as many numbers as colons
        joined = b" ".join(pairs).replace(b":", b" ")
        # (of blanks alone numpy makes a number)
        numbers = np.fromstring(joined, dtype=np.float64, sep=" ") if joined.strip() else np.empty(0)
        self._check_columns(block, numbers[::2], len(pairs))
        self._columns.frombytes(numbers[::2].astype(np.int32).tobytes())
        self._values.frombytes(numbers[1::2].astype(np.float32).tobytes())
        assert len(self._columns) == len(self._values) == self._ends[-1]

    def finish(self) -> MatrixLines:
        num_rows = len(self._ends) - 1
        columns = np.frombuffer(self._columns, dtype=np.int32)
        if self._header is None:
            num_features = int(columns.max(initial=-1)) + 1
        else:
            if num_rows != self._header[0]:
                raise ValueError(
                    f"{self._path}:1: the header says {self._header[0]:,} documents, but {num_rows:,} lines follow"
                )
            num_features = self._header[1]
        values = np.frombuffer(self._values, dtype=np.float32)
        ends = np.frombuffer(self._ends, dtype=np.int64)
        features = csr_matrix((values, columns, ends), shape=(num_rows, num_features))
        features.sum_duplicates()
        return MatrixLines(self._labels.finish(), features, self._header[2] if self._header else None)

    def _checked_labels(self, labels: bytes) -> list[int]:
        numbers = [int(label) for label in labels.split(b",")] if labels else []
        limit = self._header[2] if self._header else 1 << 31
        if numbers and max(numbers) >= limit:
            raise ValueError(f"label {max(numbers)} is out of range: the header says {limit:,} labels, counted from 0")
        return numbers

    def _check_columns(self, block: list[tuple[int, bytes]], columns: np.ndarray, num_rows: int) -> None:
        limit = self._header[1] if self._header else 1 << 31
        wrong = np.flatnonzero(columns >= limit)
        if len(wrong):
            first = self._ends[-1 - num_rows]
            row = int(np.searchsorted(np.array(self._ends[-1 - num_rows :]) - first, wrong[0], side="right")) - 1
            raise ValueError(
                f"{self._path}:{block[row][0]}: feature {int(columns[wrong[0]])} is out of range: "
                f"the header says {limit:,} features, counted from 0"
            )


def _split(line: bytes) -> tuple[bytes, bytes]:
    """Labels and features of a line; a line without labels begins with a space (or with its first feature)."""
    labels, _, features = line.partition(b" ")
    if b":" in labels:
        labels, features = b"", line
    features = features.strip()
    if labels and not _LABELS.fullmatch(labels):
        raise ValueError(f"{labels.decode()!r:.80} is not a list of labels; expected l1,l2 f:v f:v")
    if not _PAIRS.fullmatch(features):
        wrong = next(piece for piece in [*features.split(), features] if not _PAIR.fullmatch(piece))
        raise ValueError(f"{wrong.decode()!r:.80} is not feature:value; expected l1,l2 f:v f:v")
    return labels, features
