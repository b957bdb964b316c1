"""What a user should know of the documents read: empty, repeated and unlabelled ones, counted in sentences."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from cascadexml.texts import Texts


def fingerprints(texts: Texts) -> np.ndarray:
    """int64 a document, equal where texts are equal; 0 stands for an empty text.

    Among ten million documents the chance that two different ones share one is 3 in a million.
    """
    digests = bytearray()
    for chunk in texts.byte_chunks():
        for text in chunk:
            digests += blake2b(text, digest_size=8).digest()
    found = np.frombuffer(digests, dtype=np.int64)
    return np.where(texts.is_empty(), 0, found)


def text_notes(name: str, texts: Texts, found: np.ndarray, train: np.ndarray | None) -> list[str]:
    """`found`: the fingerprints; `train`: those of the train part, for a part that is compared with it."""
    notes = []
    if num_empty := int(texts.is_empty().sum()):
        notes.append(f"{name}: {num_empty:,} documents have an empty text; they are kept")
    filled = found[found != 0]
    if num_repeated := len(filled) - len(np.unique(filled)):
        notes.append(f"{name}: {num_repeated:,} documents repeat the exact text of an earlier one; they are kept")
    if train is not None and (num_seen := int(np.isin(filled, train).sum())):
        notes.append(f"{name}: {num_seen:,} documents have the exact text of a train document; they are kept")
    return notes


def label_notes(name: str, num_labels: np.ndarray, num_unknown: np.ndarray, num_repeated: int) -> list[str]:
    notes = []
    if num_without := int(((num_labels == 0) & (num_unknown == 0)).sum()):
        notes.append(f"{name}: {num_without:,} documents have no label; they are kept")
    if num_only_unknown := int(((num_labels == 0) & (num_unknown > 0)).sum()):
        notes.append(f"{name}: {num_only_unknown:,} documents have labels outside the label set only")
    if num_repeated:
        notes.append(f"{name}: {num_repeated:,} labels stand twice with the same document; counted once")
    return notes


def num_words(texts: Texts) -> int:
    """Runs of bytes other than space, TAB and line breaks, over all texts."""
    return sum(len(text.split()) for chunk in texts.byte_chunks() for text in chunk)
