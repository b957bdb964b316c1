"""A file's bytes in, its lines out: clean UTF-8, split at line feeds and nowhere else.

A document may hold U+2028, \\x0b or \\x85: str.splitlines would break it there, so lines are cut in the bytes.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from cascadexml.texts import Texts

_BLOCK_SIZE = 1 << 24
_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path, notes: list[str]) -> Texts:
    """Every line of a file, empty ones included; a line feed at the very end begins no further line."""
    with open_binary(path) as file:
        return lines_of(file, path.name, notes)


def lines_of(file: BinaryIO, name: str, notes: list[str]) -> Texts:
    """As `read_lines`, of an open file (standard input has no path)."""
    buffer = bytearray()
    ends = array("q", [0])
    repairs = Repairs(name)
    for chunk in _clean_chunks(file, repairs):
        breaks = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n"))
        if not chunk.endswith(b"\n"):
            breaks = np.append(breaks, len(chunk))
        ends.frombytes((len(buffer) + breaks - np.arange(len(breaks))).astype(np.int64).tobytes())
        buffer += chunk.replace(b"\n", b"")
    notes.extend(repairs.sentences())
    return Texts(np.frombuffer(buffer, dtype=np.uint8), np.frombuffer(ends, dtype=np.int64))


def numbered_lines(path: Path, notes: list[str]) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line) for each line of a file, for readers that look at every line anyway."""
    repairs = Repairs(path.name)
    number = 0
    with open_binary(path) as file:
        for chunk in _clean_chunks(file, repairs):
            for line in chunk.removesuffix(b"\n").split(b"\n"):
                number += 1
                yield number, line
    notes.extend(repairs.sentences())


def first_lines(path: Path, limit: int = 20, size: int = 1 << 16) -> list[bytes]:
    """The whole lines at the head of a file, to recognise it by; the first one however long it is."""
    with open_binary(path) as file:
        head = _read(file, size, path.name)
        while b"\n" not in head and (more := _read(file, size, path.name)):
            head += more
        at_end = not _read(file, 1, path.name)
    lines = head.removeprefix(_BOM).replace(b"\r\n", b"\n").split(b"\n")
    if lines[-1] == b"" or (not at_end and len(lines) > 1):
        lines.pop()
    return lines[:limit]


def open_binary(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where they are gzip (whatever the file's name says)."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected a file")
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    file = path.open("rb")
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    if not packed:
        return file
    file.close()
    return cast(BinaryIO, gzip.open(path, "rb"))


@dataclass
class Repairs:
    """What had to be set right in a file's bytes, counted for the summary."""

    name: str
    num_damaged: int = 0
    """lines with bytes that are not UTF-8"""
    num_carriage_returns: int = 0
    had_bom: bool = False

    def sentences(self) -> list[str]:
        found = []
        if self.num_damaged:
            found.append(f"{self.name}: bytes that are not UTF-8 in {self.num_damaged:,} lines, replaced by U+FFFD")
        if self.num_carriage_returns:
            found.append(f"{self.name}: {self.num_carriage_returns:,} lines end in CR LF, read as LF")
        if self.had_bom:
            found.append(f"{self.name}: byte order mark at the beginning left out")
        return found


def _clean_chunks(file: BinaryIO, repairs: Repairs) -> Iterator[bytes]:
    """Blocks of whole lines as valid UTF-8, without byte order mark and carriage returns at line ends."""
    for position, chunk in enumerate(_line_blocks(file, repairs.name)):
        if position == 0:
            chunk = _without_bom(chunk, repairs)
        num_pairs = chunk.count(b"\r\n")
        if num_pairs:
            repairs.num_carriage_returns += num_pairs
            chunk = chunk.replace(b"\r\n", b"\n")
        chunk = _as_utf8(chunk, repairs)
        if chunk:
            yield chunk


def _line_blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    rest: list[bytes] = []
    while block := _read(file, _BLOCK_SIZE, name):
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, block[:cut]])
            rest = []
        rest.append(block[cut:])
    last = b"".join(rest)
    if last:
        yield last


def _read(file: BinaryIO, size: int, name: str) -> bytes:
    try:
        return file.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: the gzip file is damaged or cut short ({error}); pack or fetch it again") from None


def _without_bom(chunk: bytes, repairs: Repairs) -> bytes:
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{repairs.name} is UTF-16 (by its first two bytes), expected UTF-8: save it as UTF-8")
    repairs.had_bom = chunk.startswith(_BOM)
    return chunk.removeprefix(_BOM)


def _as_utf8(chunk: bytes, repairs: Repairs) -> bytes:
    try:
        chunk.decode("utf-8")
    except UnicodeDecodeError:
        repairs.num_damaged += sum(_is_damaged(line) for line in chunk.split(b"\n"))
        return chunk.decode("utf-8", "replace").encode("utf-8")
    return chunk


def _is_damaged(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
