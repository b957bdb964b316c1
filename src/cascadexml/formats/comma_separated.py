"""CSV with a header line; comma, semicolon or TAB between cells, plain or gzip."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cascadexml.formats.columns import split_header
from cascadexml.formats.lines import first_lines, numbered_lines


def column_names(path: Path) -> list[str]:
    lines = first_lines(path, limit=1)
    if not lines:
        raise ValueError(f"{path} is empty, expected a header line and one document a row")
    line = lines[0].decode("utf-8", "replace")
    try:
        cells = next(csv.reader([line], delimiter=split_header(line)[1], strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}:1: not a CSV header ({error}); expected column names in one line") from None
    names = [name.strip() for name in cells]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"{path}:1: column {', '.join(sorted(repeated))} stands twice in the header")
    return names


def read_rows(path: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    names = column_names(path)
    delimiter = split_header(first_lines(path, limit=1)[0].decode("utf-8", "replace"))[1]
    lines = (f"{line.decode('utf-8')}\n" for _, line in numbered_lines(path, notes))
    # a document may be longer than the module's limit of 131,072 characters
    usual_limit = csv.field_size_limit(sys.maxsize)
    try:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        next(reader)
        yield from _rows(reader, names, path, notes)
    finally:
        csv.field_size_limit(usual_limit)


def _rows(reader: Any, names: list[str], path: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    num_blank = 0
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise ValueError(f"{where}: not valid CSV ({error}); look for a quote that is not closed") from None
        if not cells:
            if len(names) > 1:
                num_blank += 1
                continue
            # in a file of one column a blank line is a row: an empty text
            cells = [""]
        if len(cells) != len(names):
            raise ValueError(
                f"{where}: {len(cells)} cells, but the header has {len(names)}; a text with the delimiter in it "
                "must stand in quotes"
            )
        yield where, dict(zip(names, cells, strict=True))
    if num_blank:
        notes.append(f"{path.name}: {num_blank:,} blank lines between rows skipped")
