"""Strings by the million: one UTF-8 buffer and the offsets into it, instead of a list of Python objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import overload

import numpy as np

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Texts:
    """A sequence of strings; documents, label ids and label names all travel as one of these."""

    buffer: np.ndarray
    """uint8: every string's UTF-8 bytes, one after the other"""
    offsets: np.ndarray
    """int64, one more than there are strings: string i is buffer[offsets[i] : offsets[i + 1]]"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1, "Texts are read in order; use take for any other rows"
            return self._decode(start, max(start, stop))
        position = range(len(self))[index]
        return self._decode(position, position + 1)[0]

    def __iter__(self) -> Iterator[str]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self, size: int = 4096) -> Iterator[list[str]]:
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def take(self, rows: np.ndarray) -> Texts:
        """The strings at `rows` (positions, any order), copied."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = (self.offsets[1:] - self.offsets[:-1])[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        buffer = np.empty(offsets[-1], dtype=np.uint8)
        # an index is eight times a byte: some thousand rows at a time keep that small
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            block = slice(first, first + _ROWS_AT_ONCE)
            bounds = offsets[first : first + _ROWS_AT_ONCE + 1]
            source = np.repeat(self.offsets[rows[block]] - bounds[:-1], lengths[block])
            source += np.arange(bounds[0], bounds[-1])
            buffer[bounds[0] : bounds[-1]] = self.buffer[source]
        return Texts(buffer, offsets)

    def is_empty(self) -> np.ndarray:
        """True for every string without a byte."""
        return self.offsets[1:] == self.offsets[:-1]

    def byte_chunks(self, size: int = 4096) -> Iterator[list[bytes]]:
        """As `chunks`, undecoded: for code that splits, hashes or looks up."""
        for start in range(0, len(self), size):
            yield self._bytes(start, min(start + size, len(self)))

    def _bytes(self, start: int, stop: int) -> list[bytes]:
        bounds = self.offsets[start : stop + 1]
        raw = np.asarray(self.buffer[bounds[0] : bounds[-1]]).tobytes()
        relative = (bounds - bounds[0]).tolist()
        return [raw[a:b] for a, b in pairwise(relative)]

    def _decode(self, start: int, stop: int) -> list[str]:
        return [string.decode("utf-8") for string in self._bytes(start, stop)]

    @staticmethod
    def from_strings(strings: Iterable[str]) -> Texts:
        builder = TextsBuilder()
        for string in strings:
            builder.append(encode(string))
        return builder.finish()

    def save_lines(self, path: Path) -> None:
        """One string a line; the caller vouches that none holds a line break."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for chunk in self.chunks():
                file.write("".join(f"{string}\n" for string in chunk))

    @staticmethod
    def load_lines(path: Path) -> Texts:
        """What `save_lines` wrote."""
        raw = np.fromfile(path, dtype=np.uint8)
        ends = np.flatnonzero(raw == ord("\n"))
        offsets = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int64)
        return Texts(raw[raw != ord("\n")], offsets)


class TextsBuilder:
    """Collects strings, as UTF-8 bytes, into one growing buffer."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._offsets = array("q", [0])

    def append(self, string: bytes) -> None:
        self._bytes += string
        self._offsets.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def finish(self) -> Texts:
        """The strings so far. The arrays look into this builder's memory, so it takes no more strings."""
        return Texts(np.frombuffer(self._bytes, dtype=np.uint8), np.frombuffer(self._offsets, dtype=np.int64))


def encode(string: str) -> bytes:
    """UTF-8; a lone surrogate (JSON may spell one out) becomes U+FFFD."""
    try:
        return string.encode("utf-8")
    except UnicodeEncodeError:
        return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
