"""The native loop of the label tree: splits every cluster of one depth into two halves of like labels."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, parallel=True)
def split_depth(indptr, indices, data, order, depth, seed, scratch, most_rounds):  # type: ignore[no-untyped-def]
    """Reorders `order` within each cluster of `depth`; clusters are shared out among the rows of `scratch`."""
    num_labels = len(order)
    num_clusters = 1 << depth
    workers = scratch.shape[0]
    for worker in numba.prange(workers):
        for cluster in range(num_clusters * worker // workers, num_clusters * (worker + 1) // workers):
            start = cluster * num_labels >> depth
            middle = (2 * cluster + 1) * num_labels >> (depth + 1)
            stop = (cluster + 1) * num_labels >> depth
            if stop - start > 1:
                # a cluster's draw depends on where it stands and on nothing that ran before it
                state = _mix(np.uint64(seed) ^ _mix(np.uint64(num_clusters + cluster)))
                _split(indptr, indices, data, order, start, middle, stop, state, scratch[worker], most_rounds)


@numba.njit(cache=True)
def _mix(state):  # type: ignore[no-untyped-def]
    """splitmix64's output function."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@numba.njit(cache=True)
def _split(indptr, indices, data, order, start, middle, stop, state, direction, most_rounds):  # type: ignore[no-untyped-def]
    """Balanced 2-means of order[start:stop]; the first go left. `direction` comes and goes zeroed."""
    rows = order[start:stop].copy()
    size, left = stop - start, middle - start
    first = np.int64(state % np.uint64(size))
    second = np.int64(_mix(state) % np.uint64(size - 1))
    if second >= first:
        second += 1
    scores = np.empty(size, dtype=np.float32)
    side = np.zeros(size, dtype=np.int8)
    _add(indptr, indices, data, rows[first], np.float32(1.0), direction)
    _add(indptr, indices, data, rows[second], np.float32(-1.0), direction)
    ranking = np.arange(size)
    for _ in range(most_rounds):
        for i in range(size):
            scores[i] = -_dot(indptr, indices, data, rows[i], direction)
        ranking = np.argsort(scores, kind="mergesort")
        changed = False
        for rank in range(size):
            new_side = np.int8(1) if rank < left else np.int8(-1)
            changed |= side[ranking[rank]] != new_side
            side[ranking[rank]] = new_side
        _clear(indptr, indices, rows, direction)
        if not changed:
            break
        _difference_of_centroids(indptr, indices, data, rows, side, direction)
    _clear(indptr, indices, rows, direction)
    for rank in range(size):
        order[start + rank] = rows[ranking[rank]]
    # within each half the labels keep their former order, so that a pair of equal labels never swaps by chance
    order[start:middle].sort()
    order[middle:stop].sort()


@numba.njit(cache=True)
def _difference_of_centroids(indptr, indices, data, rows, side, direction):  # type: ignore[no-untyped-def]
    """direction = unit(sum of the left) - unit(sum of the right)."""
    lengths = np.zeros(2, dtype=np.float32)
    for half in range(2):
        wanted = 1 - 2 * half
        for i in range(len(rows)):
            if side[i] == wanted:
                _add(indptr, indices, data, rows[i], np.float32(1.0), direction)
        square = 0.0
        for i in range(len(rows)):
            if side[i] == wanted:
                square += _dot(indptr, indices, data, rows[i], direction)
        lengths[half] = np.float32(1.0 / np.sqrt(max(square, 1e-24)))
        _clear(indptr, indices, rows, direction)
    for i in range(len(rows)):
        _add(indptr, indices, data, rows[i], lengths[0] if side[i] == 1 else -lengths[1], direction)


@numba.njit(cache=True)
def _add(indptr, indices, data, row, factor, dense):  # type: ignore[no-untyped-def]
    for at in range(indptr[row], indptr[row + 1]):
        dense[indices[at]] += factor * data[at]


@numba.njit(cache=True)
def _dot(indptr, indices, data, row, dense):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for at in range(indptr[row], indptr[row + 1]):
        total += data[at] * dense[indices[at]]
    return total


@numba.njit(cache=True)
def _clear(indptr, indices, rows, dense):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        for at in range(indptr[rows[i]], indptr[rows[i] + 1]):
            dense[indices[at]] = np.float32(0.0)
