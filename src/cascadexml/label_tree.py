"""Label features in, LabelTree out: recursive balanced 2-means, kept as one permutation of the labels.

Cluster i of a level of 2^d clusters owns the positions from i * L // 2^d up to (i + 1) * L // 2^d of that permutation.
So every level of the binary tree is known from the permutation alone, children are ranges, and sizes differ by at
most one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from cascadexml.config import check_clusters

MOST_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Levels of clusters over labels in tree order; level T + 1, after the last cluster level, is the labels."""

    order: np.ndarray
    """int32: position in the tree -> label"""
    clusters: tuple[int, ...]
    """clusters of each coarse level, coarsest first"""

    def __post_init__(self) -> None:
        check_clusters(self.clusters, len(self.order))

    @property
    def num_labels(self) -> int:
        return len(self.order)

    @property
    def num_nodes(self) -> tuple[int, ...]:
        """Nodes of each level, labels last."""
        return (*self.clusters, self.num_labels)

    @cached_property
    def starts(self) -> tuple[np.ndarray, ...]:
        """For each coarse level: cluster c owns nodes starts[c] : starts[c + 1] of the next level (int64)."""
        finer = self.num_nodes[1:]
        return tuple(cluster_starts(count, below) for count, below in zip(self.clusters, finer, strict=True))

    @cached_property
    def parents(self) -> tuple[np.ndarray, ...]:
        """For each level below the first: the node's cluster on the level above (int64)."""
        return tuple(np.repeat(np.arange(len(starts) - 1), np.diff(starts)) for starts in self.starts)

    @cached_property
    def positions(self) -> np.ndarray:
        """int64: label -> position in the tree."""
        positions = np.empty(self.num_labels, dtype=np.int64)
        positions[self.order] = np.arange(self.num_labels)
        return positions

    def max_children(self, level: int) -> int:
        return int(np.diff(self.starts[level]).max())


def cluster_starts(num_clusters: int, num_nodes: int) -> np.ndarray:
    """Where each cluster's nodes begin, and the end of the last."""
    return (np.arange(num_clusters + 1, dtype=np.int64) * num_nodes) // num_clusters


def build_tree(features: csr_matrix, seed: int, workers: int = 0) -> np.ndarray:
    """The order (int32) of the whole binary tree over the rows of `features`; the same for any number of workers."""
    import numba
    import torch

    from cascadexml.balanced_means import split_depth

    num_labels = features.shape[0]
    order = np.arange(num_labels, dtype=np.int32)
    matrix = (features.indptr.astype(np.int64), features.indices.astype(np.int32), features.data.astype(np.float32))
    workers = min(workers or numba.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    scratch = np.zeros((workers, max(features.shape[1], 1)), dtype=np.float32)
    torch_threads = torch.get_num_threads()
    for depth in range((num_labels - 1).bit_length() if num_labels > 1 else 0):
        # beyond floor(log2 L) a few clusters hold two labels, whose order nothing depends on
        if 1 << depth >= num_labels:
            break
        split_depth(*matrix, order, depth, seed, scratch, MOST_ROUNDS)
    # numba's OpenMP layer sets the thread count that torch reads
    torch.set_num_threads(torch_threads)
    return order
