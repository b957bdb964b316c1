"""Prepared on disk: plain arrays that are mapped into memory, a manifest, and a fingerprint of what training reads."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.corpus import Part
from cascadexml.folders import open_folder, write_folder
from cascadexml.prepared import NO_TEXTS, PARTS, Labels, Prepared, TokenisedPart
from cascadexml.texts import Texts
from cascadexml.tokens import Tokenizer, TokenStore

KIND = "prepared"


def save_labels(labels: Labels, folder: Path) -> None:
    labels.ids.save_lines(folder / "labels.txt")
    if labels.names is not None:
        labels.names.save_lines(folder / "label_names.txt")
    np.save(folder / "label_counts.npy", labels.counts)


def load_labels(folder: Path, num_train: int) -> Labels:
    names = folder / "label_names.txt"
    counts = np.load(folder / "label_counts.npy", allow_pickle=False)
    return Labels(
        Texts.load_lines(folder / "labels.txt"), Texts.load_lines(names) if names.is_file() else None, counts, num_train
    )


def save_prepared(prepared: Prepared, path: Path, overwrite: bool = False) -> None:
    about = {
        "encoder": prepared.encoder,
        "max_tokens": prepared.max_tokens,
        "seed": prepared.seed,
        "num_train": prepared.labels.num_train,
        "unknown_labels": {name: part.known.num_unknown_labels for name, part in prepared.parts.items()},
        "statistics": prepared.statistics,
        "notes": prepared.notes,
    }
    with write_folder(path, KIND, about, overwrite) as folder:
        save_labels(prepared.labels, folder)
        prepared.tokenizer.save(folder / "tokenizer")
        for name in ("validation", "tree_order", "refit_order"):
            np.save(folder / f"{name}.npy", getattr(prepared, name))
        for name, part in prepared.parts.items():
            part.tokens.save(folder / name)
            _save_pairs(folder / name, "labels", part.known.labels)
            np.save(folder / name / "num_unknown.npy", part.known.num_unknown)
            if part.known.excluded is not None:
                _save_pairs(folder / name, "excluded", part.known.excluded)


def load_prepared(path: Path) -> Prepared:
    about = open_folder(path, KIND)
    labels = load_labels(path, about["num_train"])
    tokenizer = Tokenizer.load(path / "tokenizer")
    parts = {}
    for name in PARTS:
        if (path / name).is_dir():
            tokens = TokenStore.load(path / name, tokenizer.template)
            excluded = (
                _load_pairs(path / name, "excluded", len(labels))
                if (path / name / "excluded_indptr.npy").exists()
                else None
            )
            num_unknown = np.load(path / name / "num_unknown.npy", allow_pickle=False)
            pairs = _load_pairs(path / name, "labels", len(labels))
            parts[name] = TokenisedPart(
                tokens, Part(NO_TEXTS, pairs, num_unknown, about["unknown_labels"][name], excluded=excluded)
            )
    arrays = {
        name: np.load(path / f"{name}.npy", allow_pickle=False) for name in ("validation", "tree_order", "refit_order")
    }
    return Prepared(
        parts=parts,
        labels=labels,
        tokenizer=tokenizer,
        encoder=about["encoder"],
        max_tokens=about["max_tokens"],
        seed=about["seed"],
        statistics=about["statistics"],
        notes=tuple(about["notes"]),
        **arrays,
    )


def _save_pairs(folder: Path, name: str, matrix: csr_matrix) -> None:
    np.save(folder / f"{name}_indptr.npy", matrix.indptr)
    np.save(folder / f"{name}_indices.npy", matrix.indices.astype(np.int32))


def _load_pairs(folder: Path, name: str, num_labels: int) -> csr_matrix:
    indptr, indices = (np.load(folder / f"{name}_{kind}.npy", allow_pickle=False) for kind in ("indptr", "indices"))
    return csr_matrix((np.ones(len(indices), dtype=bool), indices, indptr), shape=(len(indptr) - 1, num_labels))


def fingerprint(prepared: Prepared) -> str:
    """Changes with anything that training reads of the data."""
    train = prepared.parts["train"]
    digest = hashlib.sha256(json.dumps([prepared.max_tokens, asdict(prepared.tokenizer.template)]).encode())
    arrays = [train.tokens.ids, train.tokens.offsets, train.known.labels.indices, train.known.labels.indptr]
    for array in [*arrays, prepared.validation, prepared.tree_order, prepared.refit_order]:
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()
