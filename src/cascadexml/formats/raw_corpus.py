"""What a reader hands on: every part as its file has it, the label set not yet decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.formats.label_lists import LabelLists
from cascadexml.texts import Texts

PART_NAMES = ("train", "dev", "test")
_MOST_COLUMNS = 100_000_000


@dataclass(frozen=True, eq=False)
class LabelNames:
    """What labels.tsv says, line by line."""

    ids: Texts
    names: Texts


@dataclass(frozen=True, eq=False)
class RawPart:
    """Documents and, as numbers of the RawCorpus's ids, their labels."""

    texts: Texts
    labels: LabelLists
    row_ids: Texts | None = None
    features: csr_matrix | None = None
    excluded: np.ndarray | None = None
    """int64, pairs x 2: document, label number"""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: np.ndarray) -> RawPart:
        """The documents at `rows`, which ascend; pairs are never drawn from, as they belong to evaluation."""
        assert self.excluded is None
        return RawPart(
            texts=self.texts.take(rows),
            labels=self.labels.take(rows),
            row_ids=None if self.row_ids is None else self.row_ids.take(rows),
            features=None if self.features is None else self.features[rows],
        )


@dataclass(frozen=True, eq=False)
class RawCorpus:
    """All parts, and what their label numbers stand for."""

    parts: dict[str, RawPart]
    ids: Texts
    """label number -> id"""
    num_columns: int | None = None
    """in matrix formats: so many numbers, from 0 on, are the label set, in that order; None: train's labels are"""
    names: Texts | None = None
    """label number -> name, where the format itself has names"""
    listed: LabelNames | None = None
    """labels.tsv"""
    notes: list[str] = field(default_factory=list)


def column_corpus(
    parts: dict[str, RawPart],
    num_columns: int | None,
    notes: list[str],
    items: Texts | None = None,
    names: Texts | None = None,
    listed: LabelNames | None = None,
) -> RawCorpus:
    """Of a matrix format: labels are columns, their ids the lines of `items` or, without, the column numbers.

    `num_columns` None: nothing says how many there are, so they end at the last one train uses.
    """
    last = {part: int(raw.labels.numbers.max(initial=-1)) for part, raw in parts.items()}
    if num_columns is None:
        num_columns = last.get("train", max(last.values())) + 1
        notes.append(
            f"labels are columns 0 to {num_columns - 1:,}, the last one in use; no file says how many there are"
        )
    num_ids = max(num_columns, *(number + 1 for number in last.values()))
    if num_ids > _MOST_COLUMNS:
        raise ValueError(
            f"label number {num_ids - 1:,} is too large for a column number; are these ids of another kind?"
        )
    ids = items or Texts.from_strings(map(str, range(num_ids)))
    return RawCorpus(parts, ids, num_columns, names, listed, notes)


def hold_out_test(raw: RawCorpus, share: float, seed: int) -> RawCorpus:
    """A share of train, drawn by seed, becomes the test part."""
    if "test" in raw.parts:
        raise ValueError(
            f"hold_out is {share}, but these data have a test part already: leave hold_out at 0, "
            "or take the test part away"
        )
    if "train" not in raw.parts:
        raise ValueError(f"hold_out is {share}, but there is no train part to draw from")
    train = raw.parts["train"]
    num_held_out = round(share * len(train))
    if not 0 < num_held_out < len(train):
        raise ValueError(
            f"hold_out {share} of {len(train):,} documents is {num_held_out:,}; "
            "at least one document must be held out and one left to train on"
        )
    is_test = np.zeros(len(train), dtype=bool)
    is_test[np.random.default_rng(seed).permutation(len(train))[:num_held_out]] = True
    note = f"test part: {num_held_out:,} of {len(train):,} documents of train, drawn with seed {seed}"
    parts = {**raw.parts, "train": train.take(np.flatnonzero(~is_test)), "test": train.take(np.flatnonzero(is_test))}
    return replace(raw, parts=parts, notes=[*raw.notes, note])
