"""tf-idf (or other sparse features) that lie beside the texts: recognised by looking, float32 CSR out."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, load_npz

from cascadexml.formats.matrix_lines import read_matrix_lines
from cascadexml.formats.recognise import SHORT_NAMES, matrix_file

_DAMAGED = (ValueError, TypeError, OSError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def find_features(folder: Path, parts: dict[str, int], notes: list[str]) -> dict[str, csr_matrix]:
    """Features of each part (name -> number of documents) that has a file of them."""
    found = {}
    for part, num_documents in parts.items():
        path = _feature_file(folder, part)
        if path is not None:
            features = _read(path, notes)
            check_rows(path, features.shape[0], num_documents, part)
            notes.append(f"{path.name}: {features.shape[1]:,} sparse features for {part}")
            found[part] = features
    return same_width(found)


def same_width(features: dict[str, csr_matrix]) -> dict[str, csr_matrix]:
    """Files without a header end at the last feature they use: all are widened to the widest."""
    width = max((matrix.shape[1] for matrix in features.values()), default=0)
    for matrix in features.values():
        matrix.resize(matrix.shape[0], width)
    return features


def read_npz(path: Path) -> csr_matrix:
    try:
        with path.open("rb") as file:
            matrix = csr_matrix(load_npz(file))
        # an index beyond the matrix would be read as memory
        matrix.check_format(full_check=True)
    except _DAMAGED as error:
        raise ValueError(f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it ({error})") from None
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def check_rows(path: Path, num_rows: int, num_documents: int, part: str) -> None:
    if num_rows != num_documents:
        raise ValueError(
            f"{path} has {num_rows:,} rows, but the {part} part has {num_documents:,} documents; "
            "both must describe the same documents in the same order"
        )


def _feature_file(folder: Path, part: str) -> Path | None:
    short = SHORT_NAMES[part]
    names = (f"X.{short}.npz", f"X.{short}.tfidf.npz", f"{part}_features.npz")
    return next((folder / name for name in names if (folder / name).exists()), None) or matrix_file(folder, part)


def _read(path: Path, notes: list[str]) -> csr_matrix:
    if path.suffix == ".npz":
        return read_npz(path).astype(np.float32)
    return read_matrix_lines(path, notes).features
