"""A Model and tokens in, Predictions or document vectors out: one row a document, in order, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cascadexml.batches import Batch, BatchMaker, ahead
from cascadexml.cascade import Predictions
from cascadexml.model import Model
from cascadexml.prepared import TokenisedPart
from cascadexml.tokens import TokenStore

BATCH_TOKENS = {"cpu": 1 << 13, "cuda": 1 << 17}
"""padded tokens a batch"""


def predict(
    model: Model, tokens: TokenStore, k: int, top_k: tuple[int, ...] | None = None, rank: str | None = None
) -> Predictions:
    """By cascade, with the top-k and ranking chosen in training unless given."""
    chosen = model.config.predict
    kept = chosen.top_k if top_k is None else top_k
    return _predictions(
        model, tokens, lambda vectors: model.cascade.predict(vectors, kept, k, rank or chosen.rank or "label")
    )


def predict_all(model: Model, tokens: TokenStore, k: int) -> Predictions:
    """Every label scored for every document."""
    return _predictions(model, tokens, lambda vectors: model.cascade.predict_all(vectors, k))


@dataclass(frozen=True, eq=False)
class Answered:
    """A labelled part, answered and measured in one pass of the encoder."""

    by_cascade: Predictions
    over_all: Predictions | None
    """with every label scored; None where the model has no coarse levels and does nothing else"""
    recall: list[float]
    """as `shortlist_recall`"""


def predict_and_measure(model: Model, part: TokenisedPart, k: int) -> Answered:
    """The k best labels as chosen in training, and how far the shortlists stand from scoring all labels."""
    chosen, cascade = model.config.predict, model.cascade
    recall = _Recall(model, chosen.top_k)
    pieces: list[tuple[np.ndarray, Predictions]] = []
    ceiling: list[tuple[np.ndarray, Predictions]] = []

    def use(batch: Batch, vectors: dict[int, Tensor]) -> None:
        pieces.append((batch.rows, cascade.predict(vectors, chosen.top_k, k, chosen.rank or "label")))
        if chosen.top_k:
            ceiling.append((batch.rows, cascade.predict_all(vectors, k)))
            recall.count(batch, vectors)

    _each_batch(model, _labelled_batches(model, part), use)
    over_all = _assemble(len(part), ceiling) if chosen.top_k else None
    return Answered(_assemble(len(part), pieces), over_all, recall.shares())


class _Recall:
    """Counts positives whose cluster the levels above kept, level by level below the first."""

    def __init__(self, model: Model, kept: tuple[int, ...]) -> None:
        self.cascade, self.kept = model.cascade, kept
        self._found, self._total = np.zeros(len(kept)), np.zeros(len(kept))

    def count(self, batch: Batch, vectors: dict[int, Tensor]) -> None:
        self._found += self.cascade.shortlist_recall(vectors, self.kept, batch.positives)
        self._total += [len(positives.nodes) for positives in batch.positives[1:]]

    def shares(self) -> list[float]:
        return [float(value) for value in 100 * self._found / np.maximum(self._total, 1)]


def _labelled_batches(model: Model, part: TokenisedPart) -> BatchMaker:
    return BatchMaker(part.tokens, model.config.model.max_tokens, part.known.labels, model.cascade.tree)


def shortlist_recall(model: Model, part: TokenisedPart, top_k: tuple[int, ...] | None = None) -> list[float]:
    """For each level below the first: share (%) of a part's positives whose cluster the levels above kept."""
    kept = model.config.predict.top_k if top_k is None else top_k
    recall = _Recall(model, kept)
    _each_batch(model, _labelled_batches(model, part), recall.count)
    return recall.shares()


def encode_levels(model: Model, tokens: TokenStore) -> list[np.ndarray]:
    """The vector of each document that each level reads, fp16."""
    levels = [np.empty((len(tokens), model.encoder.width), np.float16) for _ in model.cascade.heads]

    def store(batch: Batch, vectors: dict[int, Tensor]) -> None:
        for level, vector in zip(levels, model.cascade.level_vectors(vectors), strict=True):
            level[batch.rows] = vector.cpu().numpy().astype(np.float16)

    _each_batch(model, BatchMaker(tokens, model.config.model.max_tokens), store)
    return levels


class Vectors:
    """Encoded once, asked many times: what the choice of top-k and ranking goes through."""

    def __init__(self, model: Model, tokens: TokenStore) -> None:
        self.model = model
        self.batches: list[tuple[np.ndarray, dict[int, Tensor]]] = []
        self.num_documents = len(tokens)
        _each_batch(
            model, BatchMaker(tokens, model.config.model.max_tokens), lambda b, v: self.batches.append((b.rows, v))
        )

    def predictions(self, answer: Callable[[dict[int, Tensor]], Predictions]) -> Predictions:
        return _assemble(self.num_documents, [(rows, answer(vectors)) for rows, vectors in self.batches])


def _predictions(model: Model, tokens: TokenStore, answer: Callable[[dict[int, Tensor]], Predictions]) -> Predictions:
    pieces: list[tuple[np.ndarray, Predictions]] = []
    _each_batch(
        model, BatchMaker(tokens, model.config.model.max_tokens), lambda b, v: pieces.append((b.rows, answer(v)))
    )
    return _assemble(len(tokens), pieces)


def _assemble(num_documents: int, pieces: list[tuple[np.ndarray, Predictions]]) -> Predictions:
    width = max((piece.labels.shape[1] for _, piece in pieces), default=0)
    labels = np.full((num_documents, width), -1, np.int64)
    scores = np.zeros((num_documents, width), np.float32)
    for rows, piece in pieces:
        labels[rows, : piece.labels.shape[1]] = piece.labels
        scores[rows, : piece.labels.shape[1]] = piece.scores
    return Predictions(labels, scores)


@torch.no_grad()
def _each_batch(model: Model, maker: BatchMaker, use: Callable[[Batch, dict[int, Tensor]], None]) -> None:
    model.train(False)
    updates = batches_of_tokens(maker.lengths, BATCH_TOKENS[model.device.type])
    for (batch,) in ahead(maker, updates, 0, model.device):
        use(batch, model.encode(batch))


def batches_of_tokens(lengths: np.ndarray, most_tokens: int) -> list[np.ndarray]:
    """All rows once, longest first, so that memory runs out at the start or not at all."""
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        size = max(1, most_tokens // int(lengths[order[start]]))
        batches.append(order[start : start + size])
        start += size
    return batches
