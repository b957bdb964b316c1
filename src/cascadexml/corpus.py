"""Texts and labels, read: any supported file or folder comes in, one Corpus goes out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.texts import Texts


@dataclass(frozen=True, eq=False)
class Part:
    """Train, dev or test: documents and what is known of them."""

    texts: Texts
    labels: csr_matrix
    """documents x labels of the label set, bool, column indices sorted and unique"""
    num_unknown: np.ndarray
    """int32 a document: how many of its (distinct) labels are not in the label set"""
    num_unknown_labels: int = 0
    """distinct labels outside the label set in this part"""
    row_ids: Texts | None = None
    """what the file calls each document, where it has an id column"""
    features: csr_matrix | None = None
    """tf-idf (or other sparse features) that came with the data, float32"""
    excluded: csr_matrix | None = None
    """documents x labels, bool: pairs left out at evaluation (`filter_labels_*`)"""

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Everything that was read, over one label set (train's, in a fixed order)."""

    train: Part | None
    dev: Part | None
    test: Part | None
    label_ids: Texts
    label_names: Texts | None = None
    """same order as `label_ids`; where a label has no name, its id"""
    notes: tuple[str, ...] = field(default=())
    """what was decided while reading, one sentence each, for the summary"""
    source: str = ""

    @property
    def num_labels(self) -> int:
        return len(self.label_ids)
