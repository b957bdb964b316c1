"""Annif's short-text corpora: `text<TAB><uri> <uri>`, one document a line, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cascadexml.formats.lines import numbered_lines

TEXT, LABELS = "text", "uris"


def read_rows(path: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in numbered_lines(path, notes):
        text, _, subjects = line.partition(b"\t")
        where = f"{path}:{number}"
        yield where, {TEXT: text.decode("utf-8"), LABELS: _uris(subjects.decode("utf-8"), where)}


def bare_uri(subject: str) -> str:
    """The id without the angle brackets that Annif's files write around it."""
    return subject[1:-1] if subject.startswith("<") and subject.endswith(">") else subject


def _uris(subjects: str, where: str) -> list[str]:
    found = [subject for subject in subjects.replace("\t", " ").split(" ") if subject]
    for subject in found:
        if not (subject.startswith("<") and subject.endswith(">") and len(subject) > 2):
            raise ValueError(f"{where}: subject {subject!r} is not <uri>; expected text<TAB><uri> <uri>")
    return [bare_uri(subject) for subject in found]
