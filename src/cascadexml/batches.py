"""TokenStore, labels and LabelTree in, Batches out: packed tokens and each level's positives, made ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from cascadexml.label_tree import LabelTree
from cascadexml.tokens import TokenStore

BUCKET = 50
"""updates whose documents are sorted by length together"""


@dataclass(frozen=True, eq=False)
class Positives:
    """Unique (document, node) pairs of one level, sorted by document, then node."""

    documents: Tensor
    nodes: Tensor
    most: int
    """pairs of the document with the most of them"""


@dataclass(frozen=True, eq=False)
class Batch:
    """Documents on their way through encoder and cascade."""

    rows: np.ndarray
    """positions of the documents in their part"""
    tokens: Tensor
    """int64, packed without padding"""
    lengths: Tensor
    """int64 a document, special tokens included"""
    longest: int
    positives: tuple[Positives, ...] = ()
    """one a level, labels (as positions in the tree) last; empty in prediction"""

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device) -> Batch:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        positives = tuple(replace(p, documents=move(p.documents), nodes=move(p.nodes)) for p in self.positives)
        return replace(self, tokens=move(self.tokens), lengths=move(self.lengths), positives=positives)

    def pin(self) -> Batch:
        positives = tuple(
            replace(p, documents=p.documents.pin_memory(), nodes=p.nodes.pin_memory()) for p in self.positives
        )
        return replace(self, tokens=self.tokens.pin_memory(), lengths=self.lengths.pin_memory(), positives=positives)


class BatchMaker:
    """Makes the batch of any rows of one part."""

    def __init__(
        self, tokens: TokenStore, limit: int, labels: csr_matrix | None = None, tree: LabelTree | None = None
    ) -> None:
        self.tokens = tokens
        self.limit = limit
        self.labels = labels
        self.tree = tree
        self.lengths = tokens.lengths(limit)

    def __len__(self) -> int:
        return len(self.tokens)

    def make(self, rows: np.ndarray) -> Batch:
        packed, lengths = self.tokens.pack(rows, self.limit)
        known = self.labels is not None and self.tree is not None
        positives = positives_of(rows, self.labels, self.tree) if known else ()  # type: ignore[arg-type]
        return Batch(rows, torch.from_numpy(packed), torch.from_numpy(lengths), int(lengths.max(initial=1)), positives)


def positives_of(rows: np.ndarray, labels: csr_matrix, tree: LabelTree) -> tuple[Positives, ...]:
    """The positive pairs of `rows` at each level, labels last; siblings share their parent's pair."""
    counts = np.diff(labels.indptr)[rows].astype(np.int64)
    documents = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    nodes = tree.positions[labels.indices[np.repeat(labels.indptr[rows].astype(np.int64), counts) + within]]
    levels = []
    for level in range(len(tree.num_nodes) - 1, -1, -1):
        if level < len(tree.parents):
            nodes = tree.parents[level][nodes]
        num_nodes = tree.num_nodes[level]
        pairs = np.unique(documents * num_nodes + nodes)
        documents, nodes = pairs // num_nodes, pairs % num_nodes
        most = int(np.bincount(documents, minlength=1).max()) if len(documents) else 0
        levels.append(Positives(torch.from_numpy(documents), torch.from_numpy(nodes), most))
    return tuple(reversed(levels))


def epoch_order(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The rows of each update of an epoch: shuffled, then documents of like length together, updates shuffled again."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    updates: list[np.ndarray] = []
    for start in range(0, len(order), batch_size * BUCKET):
        bucket = order[start : start + batch_size * BUCKET]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        updates += [bucket[at : at + batch_size] for at in range(0, len(bucket), batch_size)]
    return [updates[i] for i in random.permutation(len(updates))]


def ahead(
    maker: BatchMaker, updates: list[np.ndarray], small: int, device: torch.device, depth: int = 2
) -> Iterator[list[Batch]]:
    """The batches of `updates` in order, made by a thread beside the one that uses them.

    Each update comes as pieces of at most `small` documents, to be accumulated (0: one piece).
    """
    made: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def work() -> None:
        try:
            for rows in updates:
                pieces = [maker.make(piece) for piece in cut(rows, small)]
                _put(made, [piece.pin() for piece in pieces] if device.type == "cuda" else pieces, stop)
                if stop.is_set():
                    return
            _put(made, None, stop)
        except BaseException as error:
            _put(made, error, stop)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield [piece.to(device) for piece in item]
    finally:
        stop.set()
        thread.join()


def cut(rows: np.ndarray, small: int) -> list[np.ndarray]:
    """`rows` in pieces of at most `small`."""
    size = small or max(1, len(rows))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _put(made: queue.Queue[Any], item: Any, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            made.put(item, timeout=0.1)
            return
        except queue.Full:
            continue


def mean_positives(labels: csr_matrix, tree: LabelTree) -> tuple[float, ...]:
    """Positives a document at each level, labels last."""
    totals = np.zeros(len(tree.num_nodes))
    for rows in cut(np.arange(labels.shape[0]), 1 << 16):
        totals += [len(positives.nodes) for positives in positives_of(rows, labels, tree)]
    return tuple(totals / max(1, labels.shape[0]))
