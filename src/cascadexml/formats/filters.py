"""filter_labels_*.txt: pairs `document label` that are left out at evaluation."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from cascadexml.formats.label_lists import LabelLists
from cascadexml.formats.lines import numbered_lines


def read_excluded(
    folder: Path, part: str, num_documents: int, number_of: Callable[[bytes], int | None], notes: list[str]
) -> np.ndarray | None:
    """Pairs x 2 (document, label number); `number_of` gives a label's number, None where no document has it."""
    path = folder / f"filter_labels_{part}.txt"
    if part == "train" or not path.exists():
        return None
    pairs = array("q")
    num_without_use = 0
    for line_number, line in numbered_lines(path, notes):
        if not line.strip():
            continue
        try:
            document, label = _split(line, num_documents)
            number = number_of(label)
        except ValueError as error:
            raise ValueError(f"{path}:{line_number}: {error}") from None
        if number is None:
            num_without_use += 1
        else:
            pairs.extend((document, number))
    without = f", {num_without_use:,} more of labels that no document has" if num_without_use else ""
    notes.append(f"{path.name}: {len(pairs) // 2:,} pairs of document and label left out at evaluation{without}")
    return np.frombuffer(pairs, dtype=np.int64).reshape(-1, 2)


def column_number(num_columns: int | None, labels: Iterable[LabelLists]) -> Callable[[bytes], int | None]:
    """For matrix formats, whose labels are column numbers; without a declared number of them, those in use count."""
    num_used = max(int(lists.numbers.max(initial=-1)) + 1 for lists in labels)

    def number_of(label: bytes) -> int | None:
        if not label.isdigit():
            raise ValueError(f"label {label.decode()!r} is not a column number")
        if num_columns is not None and int(label) >= num_columns:
            raise ValueError(f"label {int(label)} is out of range: there are {num_columns:,} labels, counted from 0")
        return int(label) if num_columns is not None or int(label) < num_used else None

    return number_of


def _split(line: bytes, num_documents: int) -> tuple[int, bytes]:
    fields = line.split(None, 1)
    if len(fields) != 2 or not fields[0].isdigit():
        raise ValueError(f"{line.decode('utf-8')!r:.80} is not a pair `document label`, such as `0 17`")
    document = int(fields[0])
    if document >= num_documents:
        raise ValueError(f"document {document} is out of range: there are {num_documents:,}, counted from 0")
    return document, fields[1].strip()
