"""JSON Lines: one object a line, plain or gzip."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cascadexml.formats.lines import first_lines, numbered_lines

Row = tuple[str, dict[str, Any]]
"""where it stands (`file:line`), and the values by column"""


def column_names(path: Path) -> list[str]:
    """Every key of the first lines, in order of appearance: an object may leave some out."""
    found: dict[str, None] = {}
    for number, line in enumerate(first_lines(path, limit=100), start=1):
        if line.strip():
            found.update(dict.fromkeys(_parse(line, f"{path}:{number}")))
    if not found:
        raise ValueError(f"{path} is empty, expected one JSON object a line")
    return list(found)


def read_rows(path: Path, notes: list[str]) -> Iterator[Row]:
    num_blank = 0
    for number, line in numbered_lines(path, notes):
        if line.strip():
            where = f"{path}:{number}"
            yield where, _parse(line, where)
        else:
            num_blank += 1
    if num_blank:
        notes.append(f"{path.name}: {num_blank:,} blank lines between objects skipped")


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8", "replace"))
    except ValueError as error:
        raise ValueError(f"{where}: not valid JSON ({error}); expected one object a line") from None
    if not isinstance(row, dict):
        raise ValueError(f'{where}: a JSON {type(row).__name__}, expected an object such as {{"text": ...}}')
    return row
