"""Small data sets on disk, for the tests of the readers."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from cascadexml.corpus import Corpus, Part


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Each file as given; one whose name ends in .gz is packed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        raw = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return folder


def label_sets(corpus: Corpus, part: Part | None) -> list[set[str]]:
    """The ids of each document's labels."""
    assert part is not None
    ids = list(corpus.label_ids)
    return [{ids[column] for column in part.labels[row].indices.tolist()} for row in range(len(part))]


def noted(notes: Sequence[str], *words: str) -> bool:
    """Whether one note holds all these words."""
    return any(all(word in note for word in words) for note in notes)
