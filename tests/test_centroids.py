"""Rows that start at their documents: direction, length and bias, against one document at a time."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from cascadexml.batches import BatchMaker
from cascadexml.centroids import start_from_centroids
from cascadexml.config import Config
from cascadexml.encoder import load_backbone
from cascadexml.label_tree import LabelTree
from cascadexml.model import Model, build_model
from cascadexml.prepared import Prepared


def model_of(data: Prepared, config: Config) -> Model:
    tree = LabelTree(data.tree_order, config.model.clusters)
    made = build_model(
        config,
        load_backbone(config.model.encoder, tiny.CPU),
        "mean",
        tree,
        data.labels,
        data.tokenizer,
        tiny.CPU,
        "fp32",
        True,
    )
    made.cascade.start((1.0, 1.5, 2.0), 0)
    return made


@pytest.mark.parametrize("length", [20.0, 3.0])
def test_rows_point_at_their_documents(
    few: Prepared, encoder: str, length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several batches, over some of the documents; a label of none of these keeps a row of zeros."""
    monkeypatch.setattr("cascadexml.centroids.BATCH_TOKENS", {"cpu": 64})
    config = tiny.config(encoder, {"pooling": "auto", "start_length": length})
    model = model_of(few, config)
    part = few.parts["train"]
    rows = np.flatnonzero(part.known.labels[:, 3].toarray().ravel() == 0)[5:]
    bias_before = [level.bias_L.clone() for level in model.cascade.rows]
    first_before = model.cascade.rows[0].weight_LH.clone()
    start_from_centroids(model, part, rows, [1, 2])
    maker = BatchMaker(part.tokens, 32, part.known.labels, model.cascade.tree)
    batch = maker.make(rows)
    with torch.no_grad():
        inputs = model.cascade.level_vectors(model.encode(batch))
    assert torch.equal(model.cascade.rows[0].weight_LH, first_before)
    for level in (1, 2):
        x_NH = inputs[level].double()
        centred_NH = x_NH - x_NH.mean(0)
        found = model.cascade.rows[level]
        for node in range(len(found)):
            of_node = batch.positives[level].documents[batch.positives[level].nodes == node]
            direction = centred_NH[of_node].sum(0)
            size = length / centred_NH.norm(dim=1).mean()
            expected = direction / direction.norm() * size if len(of_node) else torch.zeros_like(direction)
            torch.testing.assert_close(found.weight_LH[node].double(), expected, rtol=1e-3, atol=1e-4)
            shift = float(found.bias_L[node] - bias_before[level][node])
            assert shift == pytest.approx(-float(expected @ x_NH.mean(0)), rel=1e-3, abs=1e-3)


def test_documents_score_their_labels_high_before_any_training(few: Prepared, encoder: str) -> None:
    model = model_of(few, tiny.config(encoder, tiny.AUTO_LIKE))
    part = few.parts["train"]
    start_from_centroids(model, part, np.arange(len(part)), [2])
    batch = BatchMaker(part.tokens, 32, part.known.labels, model.cascade.tree).make(np.arange(len(part)))
    with torch.no_grad():
        best = model.cascade.predict_all(model.encode(batch), 1).labels[:, 0]
    right = np.asarray(part.known.labels[np.arange(len(part)), best]).ravel()
    # two of twelve labels by chance
    assert right.mean() > 0.5
