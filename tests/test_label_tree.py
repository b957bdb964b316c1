"""The label tree: a permutation, balanced halves of like labels, and levels that are cut out of it afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array

from cascadexml.features import label_features
from cascadexml.label_tree import LabelTree, build_tree, cluster_starts

SIZES = [1, 2, 3, 7, 64, 1000]


def features(num_labels: int, seed: int = 0) -> csr_matrix:
    """Sparse rows, a tenth of them zero: labels without a document."""
    random = np.random.default_rng(seed)
    matrix = random_array((num_labels, 50), density=0.1, rng=random, format="csr", dtype=np.float32)
    keep = random.random(num_labels) > 0.1
    return csr_matrix(matrix.multiply(keep[:, None]))


@pytest.mark.parametrize("num_labels", SIZES)
def test_invariant_3_order_is_a_permutation_and_the_seed_decides_all(num_labels: int) -> None:
    """With one worker and with two; labels without a document have their place too."""
    z = features(num_labels)
    order = build_tree(z, seed=3, workers=1)
    assert order.dtype == np.int32 and sorted(order.tolist()) == list(range(num_labels))
    for workers in (2, 0, 1):
        assert build_tree(z, seed=3, workers=workers).tolist() == order.tolist()
    if num_labels >= 64:
        assert build_tree(z, seed=4).tolist() != order.tolist()


def test_invariant_3_for_a_million_seeds_and_more() -> None:
    z = features(40)
    for seed in (0, 2**31, 2**62):
        assert sorted(build_tree(z, seed).tolist()) == list(range(40))


@given(num_labels=st.integers(2, 3000), powers=st.sets(st.integers(0, 11), min_size=1, max_size=4))
def test_invariant_3_every_node_has_one_parent_and_sizes_differ_by_one(num_labels: int, powers: set[int]) -> None:
    clusters = tuple(1 << power for power in sorted(powers) if 1 << power <= num_labels)
    if not clusters:
        return
    tree = LabelTree(np.random.default_rng(0).permutation(num_labels).astype(np.int32), clusters)
    assert tree.num_nodes == (*clusters, num_labels)
    assert (tree.order[tree.positions] == np.arange(num_labels)).all() and (
        tree.positions[tree.order] == np.arange(num_labels)
    ).all()
    for level, (starts, parents) in enumerate(zip(tree.starts, tree.parents, strict=True)):
        sizes = np.diff(starts)
        assert starts[0] == 0 and starts[-1] == tree.num_nodes[level + 1] and len(starts) == clusters[level] + 1
        assert sizes.min() >= 1 and sizes.max() - sizes.min() <= 1 and tree.max_children(level) == sizes.max()
        for node in (0, len(parents) // 2, len(parents) - 1):
            assert starts[parents[node]] <= node < starts[parents[node] + 1]
    # a level's clusters, spelled out as labels, are the same whatever levels stand between
    of_first = tree.starts[0]
    for starts in tree.starts[1:]:
        of_first = starts[of_first]
    assert of_first.tolist() == cluster_starts(clusters[0], num_labels).tolist()


def test_every_split_of_the_binary_tree_is_even() -> None:
    """Position i * L // 2^d begins cluster i at depth d: halves of halves, down to single labels."""
    for num_labels in (2, 3, 7, 1000):
        for depth in range(num_labels.bit_length() - 1):
            outer, inner = cluster_starts(1 << depth, num_labels), cluster_starts(2 << depth, num_labels)
            assert set(outer.tolist()) <= set(inner.tolist())
            left, right = np.diff(inner)[::2], np.diff(inner)[1::2]
            assert (np.abs(left - right) <= 1).all()


def test_like_labels_come_together() -> None:
    """Eight groups of labels, alike within and in pairs: a cluster of eight is one group, but for unlucky starts.

    In a random order a cluster would hold labels of five groups.
    """
    held = []
    for seed in range(10):
        group = np.random.default_rng(seed).permutation(64) % 8
        dense = np.zeros((64, 30), np.float32)
        dense[np.arange(64), group * 3] = 1.0
        dense[np.arange(64), group * 3 + 1] = np.linspace(0.3, 0.7, 64)
        dense[np.arange(64), 24 + group // 4] = 1.0
        dense[np.arange(64), 26 + group // 2] = 0.8
        order = build_tree(csr_matrix(dense), seed)
        held += [len(set(group[order[start : start + 8]].tolist())) for start in range(0, 64, 8)]
    assert np.mean(held) < 1.5 and np.mean(np.array(held) == 1) > 0.7


def test_torchs_threads_stay_as_they_were() -> None:
    """Numba and torch share OpenMP; a run must not depend on whether its tree was built in the same process."""
    before = torch.get_num_threads()
    for threads in (1, before):
        torch.set_num_threads(threads)
        build_tree(features(64), 0, workers=2)
        assert torch.get_num_threads() == threads


def test_labels_that_are_all_alike_are_still_split_evenly() -> None:
    same = csr_matrix(np.ones((33, 4), np.float32))
    assert sorted(build_tree(same, 0).tolist()) == list(range(33))
    assert sorted(build_tree(csr_matrix((33, 4), dtype=np.float32), 0).tolist()) == list(range(33))
    assert sorted(build_tree(csr_matrix((5, 0), dtype=np.float32), 0).tolist()) == list(range(5))


def test_labels_of_the_same_documents_are_neighbours() -> None:
    """Through z_l, as the pipeline makes it."""
    labels = csr_matrix(np.kron(np.eye(16), np.ones((3, 2))).astype(bool))
    documents = csr_matrix(np.kron(np.eye(16), np.ones((3, 1))).astype(np.float32))
    order = build_tree(label_features(labels, documents), 0)
    assert (order[::2] // 2 == order[1::2] // 2).all()


@pytest.mark.parametrize(
    ("clusters", "reason"),
    [
        ((3,), "model.clusters has 3: a level of the tree has a power of two of clusters, e.g. 512"),
        ((0, 4), "model.clusters has 0: a level"),
        ((-4,), "model.clusters has -4: a level"),
        ((8, 4), r"model.clusters is \(8, 4\): each level needs more clusters than the one before"),
        ((4, 4), "each level needs more clusters than the one before"),
        ((4, 64), "asks for 64 clusters, but there are 37 labels: a cluster holds at least one; at most 32 fit"),
    ],
)
def test_levels_that_the_tree_does_not_have(clusters: tuple[int, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tiny.tree(37, clusters)


def test_no_levels_and_all_levels() -> None:
    assert tiny.tree(2, ()).num_nodes == (2,) and tiny.tree(2, ()).starts == ()
    assert tiny.tree(7, (1, 2, 4)).num_nodes == (1, 2, 4, 7)
