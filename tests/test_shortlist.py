"""Shortlists and predictions against brute force: a Python loop over documents, clusters and labels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch import Tensor

from cascadexml.batches import Positives, positives_of
from cascadexml.cascade import Cascade
from cascadexml.heads import plain
from cascadexml.shortlist import Children, Shortlist, candidates, slots_of

CHILDREN = Children(torch.tensor([0, 2, 5, 7]), torch.tensor([0, 0, 1, 1, 1, 2, 2]), 3)
"""three clusters of two, three and two nodes"""


def shortlist(clusters: list[list[int]]) -> Shortlist:
    clusters_BK = torch.tensor(clusters)
    return Shortlist(clusters_BK, torch.zeros(clusters_BK.shape), torch.zeros(clusters_BK.shape))


def test_candidates_are_children_with_spare_slots_masked() -> None:
    found = candidates(shortlist([[2, 1], [0, -1], [-1, -1]]), CHILDREN)
    held = [nodes[valid].tolist() for nodes, valid in zip(found.nodes_BS, found.valid_BS, strict=True)]
    assert held == [[5, 6, 2, 3, 4], [0, 1], []]
    assert found.nodes_BS.shape == (3, 6) and not found.nodes_BS[~found.valid_BS].any()


def test_slots_of_positives() -> None:
    given = shortlist([[2, 1], [0, -1], [-1, -1]])
    documents, nodes = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 4, 6, 1, 6, 3])
    slots_P, covered_P = slots_of(Positives(documents, nodes, 3), given, CHILDREN)
    assert covered_P.tolist() == [False, True, True, True, False, False]
    found = candidates(given, CHILDREN)
    assert found.nodes_BS[documents, slots_P][covered_P].tolist() == nodes[covered_P].tolist()
    assert not slots_P[~covered_P].any()


# --- prediction ---


def own_scores(cascade: Cascade, level: int, x_H: Tensor, nodes: list[int]) -> dict[int, float]:
    rows = cascade.rows[level]
    logits = rows.weight_LH[nodes].double() @ x_H.double() + rows.bias_L[nodes].double()
    own = logits.sigmoid().log() if cascade.config.loss == "bce" else logits.log_softmax(0)
    return dict(zip(nodes, own.tolist(), strict=True))


def by_brute_force(
    cascade: Cascade, x: list[Tensor], top_k: tuple[int, ...], rank: str
) -> tuple[list[tuple[float, int]], list[set[int]]]:
    """One document's labels with their scores, best first, and the nodes scored at each level."""
    tree = cascade.tree
    nodes, scored = list(range(tree.num_nodes[0])), []
    # node -> what it brings from above: nothing, its parent's own score, its path's
    above = {node: {"label": 0.0, "parent": 0.0, "path": 0.0} for node in nodes}
    for level, keep in enumerate((*top_k, 0)):
        scored.append(set(nodes))
        own = own_scores(cascade, level, x[level], nodes)
        if keep:
            starts, from_above = tree.starts[level], above
            best = sorted(own, key=own.__getitem__, reverse=True)[:keep]
            above = {
                child: {"label": 0.0, "parent": own[node], "path": own[node] + from_above[node]["path"]}
                for node in best
                for child in range(starts[node], starts[node + 1])
            }
            nodes = list(above)
    return sorted(((own[node] + above[node][rank], int(tree.order[node])) for node in nodes), reverse=True), scored


SHAPES: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [
    (37, (4, 8), (2, 3)),
    (37, (4, 8), (4, 8)),
    # the first level keeps one cluster of two, the second scores fewer nodes than it may keep
    (11, (2, 4), (1, 4)),
    (61, (2, 8, 32), (1, 3, 5)),
    (5, (4,), (3,)),
]


@pytest.mark.parametrize(("shape", "loss", "factor"), list(product(SHAPES, ["bce", "softmax"], [0, 1 << 30])))
@pytest.mark.parametrize("rank", ["label", "parent", "path"])
def test_predictions_equal_brute_force(
    shape: Any, loss: str, factor: int, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "DENSE_FACTOR", factor)
    monkeypatch.setattr(plain, "GATHER_ELEMENTS", 200)
    num_labels, clusters, top_k = shape
    cascade = tiny.cascade(num_labels, clusters, top_k, loss=loss)
    vectors = tiny.vectors(6, cascade.num_levels)
    for k in (1, 5, num_labels):
        found = cascade.predict(vectors, top_k, k, rank)
        for document in range(6):
            x = [vectors[level + 1][document].detach() for level in range(cascade.num_levels)]
            expected = by_brute_force(cascade, x, top_k, rank)[0][:k]
            given = found.labels[document] >= 0
            assert found.labels[document][given].tolist() == [label for _, label in expected]
            np.testing.assert_allclose(
                found.scores[document][given], np.exp([score for score, _ in expected]), rtol=1e-4, atol=1e-7
            )
            # slots without a label come last and score nothing
            assert given.tolist() == sorted(given.tolist(), reverse=True)
            assert not found.scores[document][~given].any()


def test_slots_are_left_empty_where_fewer_labels_were_scored() -> None:
    """Clusters of one and of two labels: a document that kept a small one has fewer answers."""
    cascade = tiny.cascade(11, (8,), (1,))
    found = cascade.predict(tiny.vectors(40, 2), (1,), 5, "parent")
    assert set((found.labels >= 0).sum(axis=1).tolist()) == {1, 2}


@pytest.mark.parametrize("final", ["shortlist", "all"])
def test_no_label_is_answered_twice(final: str) -> None:
    cascade = tiny.cascade(61, (2, 8, 32), (2, 5, 20), final=final)
    vectors = tiny.vectors(30, 4)
    for found in (cascade.predict(vectors, (2, 5, 20), 61, "path"), cascade.predict_all(vectors, 61)):
        for row in found.labels:
            given = row[row >= 0].tolist()
            assert len(given) == len(set(given)) > 20


def test_shortlist_recall_equals_brute_force() -> None:
    """A positive counts where every level above kept its cluster."""
    top_k = (1, 3, 5)
    cascade = tiny.cascade(61, (2, 8, 32), top_k)
    labels, vectors = tiny.labels_of(30, 61), tiny.vectors(30, 4)
    positives = positives_of(np.arange(30), labels, cascade.tree)
    expected = [0, 0, 0]
    for document in range(30):
        scored = by_brute_force(cascade, [vectors[level + 1][document].detach() for level in range(4)], top_k, "label")[
            1
        ]
        for level in (1, 2, 3):
            nodes = positives[level].nodes[positives[level].documents == document].tolist()
            expected[level - 1] += len(scored[level] & set(nodes))
    found = cascade.shortlist_recall(vectors, top_k, positives)
    assert found == expected
    assert 0 < found[2] < len(positives[3].nodes)
    assert cascade.shortlist_recall(vectors, (2, 8, 32), positives) == [len(p.nodes) for p in positives[1:]]
