"""labels.tsv: `id<TAB>name`, one label a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cascadexml.formats.lines import numbered_lines
from cascadexml.formats.raw_corpus import LabelNames
from cascadexml.texts import TextsBuilder, encode


def read_label_names(folder: Path, notes: list[str], strip: Callable[[str], str] | None = None) -> LabelNames | None:
    """None where the folder has no labels.tsv. `strip` takes a format's own marks off the ids."""
    path = folder / "labels.tsv"
    if not path.exists():
        return None
    ids, names = TextsBuilder(), TextsBuilder()
    line_of: dict[bytes, int] = {}
    for number, line in numbered_lines(path, notes):
        if not line.strip():
            continue
        label, tab, name = line.partition(b"\t")
        label = encode(strip(label.decode("utf-8"))) if strip else label
        if not tab or not label:
            raise ValueError(f"{path}:{number}: {line.decode('utf-8')!r:.80} is not id TAB name")
        if label in line_of:
            raise ValueError(
                f"{path}:{number}: label {label.decode('utf-8')!r} stands in line {line_of[label]} already"
            )
        line_of[label] = number
        ids.append(label)
        names.append(name or label)
    notes.append(f"labels.tsv: names of {len(ids):,} labels")
    return LabelNames(ids.finish(), names.finish())
