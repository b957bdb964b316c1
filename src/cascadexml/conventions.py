"""Which labels count: predictions and truth come in, a `Judged` under one of two conventions goes out.

*Known labels*: labels without a training document leave truth and prediction (later ones move up), documents left
with no true label are skipped; what published sets do. *All labels*: such labels are misses, also those outside the
label set. Documents with no label at all are skipped by both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

KNOWN = "known labels"
ALL = "all labels"


@dataclass(frozen=True, eq=False)
class Judged:
    """Predictions beside truth, N documents that each have a true label, K predictions, L labels."""

    convention: str
    documents: np.ndarray
    """int64: which rows of what came in are left"""
    predicted: np.ndarray
    """N x K int64: label ids, best first; -1 behind the last one given"""
    scores: np.ndarray
    """N x K: a score for each; 0 where none was given"""
    hits: np.ndarray
    """N x K bool: is the prediction true"""
    truth: csr_matrix
    """N x L bool"""
    num_unknown: np.ndarray
    """int64 a document: true labels outside the label set, none of which can be hit"""
    num_without_labels: int
    """documents skipped since nothing true is known of them, under any convention"""

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def given(self) -> np.ndarray:
        """N x K bool: was there a prediction"""
        return self.predicted >= 0

    @property
    def num_true(self) -> np.ndarray:
        """int64 a document, at least 1"""
        return np.diff(self.truth.indptr) + self.num_unknown


def judge(
    predicted: np.ndarray,
    scores: np.ndarray,
    truth: csr_matrix,
    num_unknown: np.ndarray,
    label_counts: np.ndarray,
    *,
    convention: str = KNOWN,
    excluded: csr_matrix | None = None,
) -> Judged:
    """Applies a convention; pairs in `excluded` leave truth and prediction before anything else.

    A removed prediction costs its document a candidate, so predict a few more than the largest k of interest.
    """
    check_predictions(predicted, scores, truth.shape)
    assert truth.has_canonical_format
    assert len(label_counts) == truth.shape[1]
    assert convention in (KNOWN, ALL), convention
    keep = predicted >= 0
    if excluded is not None:
        keep &= ~find_hits(predicted, excluded)
        truth = keep_entries(truth, ~_stored(excluded, entry_rows(truth), truth.indices))
    unknown = np.asarray(num_unknown, dtype=np.int64)
    labelled = np.diff(truth.indptr) + unknown > 0
    if convention == KNOWN:
        seen = label_counts > 0
        keep &= seen[predicted]
        truth = keep_entries(truth, seen[truth.indices])
        unknown = np.zeros_like(unknown)
    documents = np.flatnonzero(np.diff(truth.indptr) + unknown > 0)
    predicted, scores = compact(predicted, scores, keep)
    predicted, truth = predicted[documents], truth[documents]
    return Judged(
        convention=convention,
        documents=documents,
        predicted=predicted,
        scores=scores[documents],
        hits=find_hits(predicted, truth),
        truth=truth,
        num_unknown=unknown[documents],
        num_without_labels=int(np.count_nonzero(~labelled)),
    )


def check_predictions(predicted: np.ndarray, scores: np.ndarray, shape: tuple[int, int]) -> None:
    """Refuses predictions that do not belong to this truth, or name a label twice."""
    num_documents, num_labels = shape
    if predicted.ndim != 2 or len(predicted) != num_documents or scores.shape != predicted.shape:
        raise ValueError(
            f"predicted is {predicted.shape} and scores {scores.shape}; both must be {num_documents:,} documents x K"
        )
    if predicted.size == 0:
        return
    if predicted.max() >= num_labels or predicted.min() < -1:
        row = int(np.argmax(((predicted >= num_labels) | (predicted < -1)).any(axis=1)))
        raise ValueError(f"the prediction of row {row} holds a label id outside 0 to {num_labels - 1}, or -1 for none")
    in_order = np.sort(predicted, axis=1)
    twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)
    if twice.any():
        row = int(np.argmax(twice.any(axis=1)))
        label = int(in_order[row, 1:][twice[row]][0])
        raise ValueError(f"the prediction of row {row} holds label {label} twice; give each label once a document")
    bad = np.isnan(scores) & (predicted >= 0)
    if bad.any():
        raise ValueError(f"the prediction of row {int(np.argmax(bad.any(axis=1)))} has a score that is not a number")


def compact(predicted: np.ndarray, scores: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The predictions to keep, moved to the front in their order; -1 with score 0 behind them."""
    predicted = np.where(keep, predicted, -1).astype(np.int64, copy=False)
    scores = np.where(keep, scores, np.zeros((), scores.dtype))
    rows = np.flatnonzero((keep[:, 1:] & ~keep[:, :-1]).any(axis=1))
    if len(rows):
        order = np.argsort(~keep[rows], axis=1, kind="stable")
        predicted[rows] = np.take_along_axis(predicted[rows], order, axis=1)
        scores[rows] = np.take_along_axis(scores[rows], order, axis=1)
    return predicted, scores


def keep_entries(matrix: csr_matrix, keep: np.ndarray) -> csr_matrix:
    """The matrix with those stored entries alone for which `keep` is true."""
    before = np.concatenate([[0], np.cumsum(keep)])
    return csr_matrix((matrix.data[keep], matrix.indices[keep], before[matrix.indptr]), shape=matrix.shape)


def find_hits(predicted: np.ndarray, pairs: csr_matrix) -> np.ndarray:
    """N x K bool: which predictions are among the pairs (documents x labels); never a dense N x L."""
    rows = np.repeat(np.arange(len(predicted)), predicted.shape[1])
    labels = np.maximum(predicted, 0).ravel()
    return _stored(pairs, rows, labels).reshape(predicted.shape) & (predicted >= 0)


def entry_rows(matrix: csr_matrix) -> np.ndarray:
    """int64: the row of every stored entry."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def _stored(pairs: csr_matrix, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """bool for each (row, label): is it true in `pairs`. scipy searches within the sorted row."""
    if 0 in pairs.shape or len(rows) == 0:
        return np.zeros(len(rows), dtype=bool)
    return np.asarray(pairs[rows, labels]).ravel().astype(bool)
