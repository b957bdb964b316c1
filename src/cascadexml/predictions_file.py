"""Predictions on disk: a scipy CSR matrix of scores, documents x labels, in an .npz; the one file that knows it.

Any system can write one: `scipy.sparse.save_npz(path, scores.tocsr())`. A stored zero is a prediction too.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

_MEMBERS = ("data", "format", "indices", "indptr", "shape")
_HOW = "write predictions with scipy.sparse.save_npz(path, scores.tocsr()), one row a document, one column a label"
# Documents are ranked so many stored scores, and at most so many documents, at a time: bounds memory.
_CHUNK_ENTRIES = 4_000_000
_CHUNK_DOCUMENTS = 65_536


def save_predictions_npz(path: Path | str, predicted: np.ndarray, scores: np.ndarray, num_labels: int) -> None:
    """Writes to a temporary name, then renames, so that a killed run leaves no half file.

    The file holds scores, not ranks, so equal scores of a document are told apart by a last digit (`distinct`).
    """
    path = Path(path)
    matrix = to_csr(predicted, scores, num_labels)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            save_npz(file, matrix, compressed=False)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def to_csr(predicted: np.ndarray, scores: np.ndarray, num_labels: int) -> csr_matrix:
    """Documents x labels, columns in the order of labels.txt; equal scores of a document told apart."""
    given = predicted >= 0
    indptr = np.concatenate([[0], np.cumsum(given.sum(axis=1))])
    # scipy has no sparse float16.
    values = distinct(scores)[given].astype(np.promote_types(scores.dtype, np.float32))
    matrix = csr_matrix((values, predicted[given], indptr), shape=(len(predicted), num_labels))
    matrix.sort_indices()
    return matrix


def distinct(scores: np.ndarray) -> np.ndarray:
    """Best first, each score a last digit below the one before where they would be equal: the order outlives sorting.

    Probabilities near 1 are equal more often than one would think; scores of 0 stay equal.
    """
    scores = scores.copy()
    for column in range(1, scores.shape[1]):
        before = scores[:, column - 1]
        below = np.maximum(np.nextafter(before, -np.inf, dtype=scores.dtype), 0)
        scores[:, column] = np.where(scores[:, column] >= before, below, scores[:, column])
    return scores


def load_predictions_npz(
    path: Path | str, num_documents: int, num_labels: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """(predicted, scores), each documents x k: the k best labels, equal scores by lower label id, -1 behind them."""
    members = _read_members(Path(path))
    matrix = _checked(Path(path), members, num_documents, num_labels)
    predicted = np.full((num_documents, k), -1, dtype=np.int64)
    scores = np.zeros((num_documents, k), dtype=matrix.dtype)
    for start, stop in _chunks(matrix.indptr):
        _rank_rows(Path(path), matrix, start, stop, predicted, scores)
    return predicted, scores


def _read_members(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; {_HOW}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            members = {name: archive[name] for name in _MEMBERS if name in archive}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{path}: damaged or cut short ({error}); copy or write it again") from error
    except (ValueError, TypeError, AttributeError, NotImplementedError) as error:
        raise ValueError(f"{path}: not an .npz of plain arrays; {_HOW}") from error
    kind = _kind(members)
    if kind not in ("csr", ""):
        raise ValueError(f"{path}: holds a {kind} matrix, wanted csr; {_HOW}")
    missing = [name for name in _MEMBERS if name not in members]
    if missing:
        raise ValueError(f"{path}: an .npz without {', '.join(missing)}, so not a sparse matrix of scores; {_HOW}")
    return members


def _kind(members: dict[str, np.ndarray]) -> str:
    """What scipy says the matrix is, "" where the file does not say."""
    kind = members["format"].ravel().tolist()[0] if members.get("format", np.zeros(0)).size else ""
    return kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)


def _checked(path: Path, members: dict[str, np.ndarray], num_documents: int, num_labels: int) -> csr_matrix:
    shape = tuple(members["shape"].ravel().tolist())
    if shape != (num_documents, num_labels):
        given = " x ".join(f"{size:,}" for size in shape)
        raise ValueError(
            f"{path}: holds {given} scores, wanted {num_documents:,} documents x {num_labels:,} labels; give one row "
            "for each document of the part evaluated, also those without labels, and columns in the order of labels.txt"
        )
    data, indices, indptr = members["data"], members["indices"], members["indptr"]
    if not _is_csr(data, indices, indptr, num_documents, num_labels):
        raise ValueError(f"{path}: its data, indices and indptr don't make a csr matrix of {shape}; {_HOW}")
    if data.dtype.kind not in "biuf":
        raise ValueError(f"{path}: the scores are of type {data.dtype}, wanted real numbers")
    bad = np.flatnonzero(~np.isfinite(data))
    if len(bad):
        row = int(np.searchsorted(indptr, bad[0], side="right")) - 1
        raise ValueError(
            f"{path}: {len(bad):,} scores are {data[bad[0]]} or the like, first in row {row}; leave them out"
        )
    data = data if data.dtype in (np.float32, np.float64) else data.astype(np.float64)
    return csr_matrix((data, indices, indptr), shape=shape)


def _is_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, num_documents: int, num_labels: int) -> bool:
    if any(array.ndim != 1 for array in (data, indices, indptr)) or len(indptr) != num_documents + 1:
        return False
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu" or not len(data) == len(indices) == indptr[-1]:
        return False
    in_range = len(indices) == 0 or (indices.min() >= 0 and indices.max() < num_labels)
    return bool(indptr[0] == 0 and (indptr[1:] >= indptr[:-1]).all() and in_range)


def _chunks(indptr: np.ndarray) -> list[tuple[int, int]]:
    chunks, start, num_documents = [], 0, len(indptr) - 1
    while start < num_documents:
        stop = int(np.searchsorted(indptr, indptr[start] + _CHUNK_ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), start + _CHUNK_DOCUMENTS, num_documents)
        chunks.append((start, stop))
        start = stop
    return chunks


def _rank_rows(
    path: Path, matrix: csr_matrix, start: int, stop: int, predicted: np.ndarray, scores: np.ndarray
) -> None:
    """Fills rows start : stop of `predicted` and `scores`."""
    bounds = matrix.indptr[start : stop + 1].astype(np.int64)
    labels = matrix.indices[bounds[0] : bounds[-1]].astype(np.int64)
    data = matrix.data[bounds[0] : bounds[-1]]
    # uint16 rows make the last, stable sort a radix sort.
    rows = np.repeat(np.arange(stop - start, dtype=np.uint16), np.diff(bounds))
    if not _ascending(rows, labels):
        order = np.lexsort((labels, rows))
        labels, data = labels[order], data[order]
        _refuse_twice(path, rows, labels, start)
    order = np.argsort(-data, kind="stable")
    order = order[np.argsort(rows[order], kind="stable")]
    rank = np.arange(len(rows)) - (bounds[:-1] - bounds[0])[rows]
    best = rank < predicted.shape[1]
    places = (start + rows[best].astype(np.int64), rank[best])
    predicted[places] = labels[order[best]]
    scores[places] = data[order[best]]


def _ascending(rows: np.ndarray, labels: np.ndarray) -> bool:
    return bool(((labels[1:] > labels[:-1]) | (rows[1:] != rows[:-1])).all())


def _refuse_twice(path: Path, rows: np.ndarray, labels: np.ndarray, start: int) -> None:
    twice = np.flatnonzero((labels[1:] == labels[:-1]) & (rows[1:] == rows[:-1]))
    if len(twice):
        row, label = start + int(rows[twice[0]]), int(labels[twice[0]])
        raise ValueError(f"{path}: row {row} scores label {label} twice; give each label once a document")
