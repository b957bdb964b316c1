"""Label numbers of documents in; the CSR matrix over the label set out, and counts of what it could not hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.formats.label_lists import LabelLists


@dataclass(frozen=True, eq=False)
class LabelMatrix:
    known: csr_matrix
    """documents x labels of the label set, bool, columns sorted and unique"""
    num_unknown: np.ndarray
    """int32 a document: its distinct labels outside the label set"""
    num_unknown_labels: int
    """distinct labels outside the label set"""
    num_repeated: int
    """labels that a document lists again"""


def label_matrix(lists: LabelLists, position: np.ndarray, num_labels: int) -> LabelMatrix:
    distinct = bool_csr(lists.numbers, lists.offsets, len(position))
    columns = position[distinct.indices]
    is_known = columns >= 0
    num_known = _ones_before(is_known, distinct.indptr)
    known = bool_csr(columns[is_known], num_known, num_labels)
    return LabelMatrix(
        known=known,
        num_unknown=(np.diff(distinct.indptr) - np.diff(num_known)).astype(np.int32),
        num_unknown_labels=len(np.unique(distinct.indices[~is_known])),
        num_repeated=len(lists.numbers) - distinct.nnz,
    )


def pair_matrix(pairs: np.ndarray, position: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """(document, label number) pairs as a matrix over the label set; those outside it have no place."""
    columns = position[pairs[:, 1]]
    kept = columns >= 0
    rows = pairs[kept, 0]
    order = np.argsort(rows, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    return bool_csr(columns[kept][order], ends, shape[1])


def bool_csr(columns: np.ndarray, offsets: np.ndarray, num_columns: int) -> csr_matrix:
    """Sorted and unique columns. The arrays are taken over and may change."""
    values = np.ones(len(columns), dtype=bool)
    matrix = csr_matrix((values, columns, offsets), shape=(len(offsets) - 1, num_columns))
    matrix.sum_duplicates()
    return matrix


def _ones_before(flags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """How many flags are set before each offset, without a running sum over all flags."""
    if flags.all():
        return offsets.astype(np.int64)
    unset = np.flatnonzero(~flags)
    return offsets - np.searchsorted(unset, offsets)
