"""Batches: the positives of every level, the order of an epoch, and the thread that makes them ahead."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from cascadexml.batches import BUCKET, BatchMaker, ahead, cut, epoch_order, mean_positives, positives_of
from cascadexml.texts import Texts
from cascadexml.tokens import tokenise

TREE = tiny.tree(61, (2, 8, 32))


def maker(num_documents: int = 30) -> BatchMaker:
    texts = Texts.from_strings(" ".join(tiny.WORDS[: number % 9]) for number in range(num_documents))
    return BatchMaker(tokenise(texts, tiny.tokenizer(), 32), 8, tiny.labels_of(num_documents, 61), TREE)


def test_positives_are_unique_pairs_of_every_level() -> None:
    labels, rows = tiny.labels_of(20, 61), np.array([3, 0, 17, 3, 9])
    found = positives_of(rows, labels, TREE)
    assert len(found) == 4
    for place, row in enumerate(rows):
        nodes = set(TREE.positions[labels.indices[labels.indptr[row] : labels.indptr[row + 1]]].tolist())
        for level in (3, 2, 1, 0):
            of_document = found[level].nodes[found[level].documents == place].tolist()
            assert of_document == sorted(nodes)
            if level:
                nodes = {int(TREE.parents[level - 1][node]) for node in nodes}
    for positives in found:
        assert positives.documents.tolist() == sorted(positives.documents.tolist())
        assert positives.most == max(torch.bincount(positives.documents).tolist())
        assert positives.documents.dtype == positives.nodes.dtype == torch.int64


def test_documents_without_labels_have_no_pairs() -> None:
    found = positives_of(np.array([0, 0]), tiny.labels_of(1, 61), TREE)
    assert [(len(positives.nodes), positives.most) for positives in found] == [(0, 0)] * 4


def test_mean_positives(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tiny.labels_of(20, 61)
    found = mean_positives(labels, TREE)
    whole = positives_of(np.arange(20), labels, TREE)
    assert found == pytest.approx([len(positives.nodes) / 20 for positives in whole])
    assert found[0] <= found[1] <= found[2] <= found[3]


def test_batch_holds_its_documents() -> None:
    made = maker()
    batch = made.make(np.array([9, 1, 8]))
    assert batch.lengths.tolist() == [2, 3, 8] and batch.longest == 8 and len(batch) == 3
    expected, _ = made.tokens.pack(np.array([9, 1, 8]), 8)
    assert batch.tokens.tolist() == expected.tolist()
    assert len(batch.positives) == 4
    assert BatchMaker(made.tokens, 32).make(np.array([8])).longest == 10
    assert BatchMaker(made.tokens, 32).make(np.array([8])).positives == ()


@given(
    num_documents=st.integers(0, 400), batch_size=st.integers(1, 70), seed=st.integers(0, 3), epoch=st.integers(0, 3)
)
def test_an_epoch_holds_every_document_once(num_documents: int, batch_size: int, seed: int, epoch: int) -> None:
    lengths = np.random.default_rng(1).integers(2, 30, num_documents)
    updates = epoch_order(lengths, batch_size, seed, epoch)
    assert sorted(np.concatenate([*updates, np.empty(0, np.int64)]).tolist()) == list(range(num_documents))
    assert len(updates) == -(-num_documents // batch_size)
    assert sum(len(update) < batch_size for update in updates) <= 1
    again = epoch_order(lengths, batch_size, seed, epoch)
    assert [update.tolist() for update in updates] == [update.tolist() for update in again]


def test_epochs_and_seeds_differ_and_lengths_are_alike() -> None:
    lengths = np.random.default_rng(1).integers(2, 200, 8 * BUCKET * 3)
    orders = [np.concatenate(epoch_order(lengths, 8, seed, epoch)).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    spread = np.mean([np.ptp(lengths[update]) for update in epoch_order(lengths, 8, 0, 0)])
    assert spread < 10, "documents of like length travel together"
    means = [lengths[update].mean() for update in epoch_order(lengths, 8, 0, 0)]
    assert np.corrcoef(means, np.arange(len(means)))[0, 1] < 0.3, "short updates do not come first"


def test_pieces_of_a_batch() -> None:
    rows = np.arange(11)
    assert [len(piece) for piece in cut(rows, 4)] == [4, 4, 3]
    assert [len(piece) for piece in cut(rows, 0)] == [len(piece) for piece in cut(rows, 20)] == [11]
    assert np.concatenate(cut(rows, 4)).tolist() == rows.tolist()


def test_batches_made_ahead_come_in_order() -> None:
    updates = [np.array([4, 5, 6]), np.array([1]), np.array([2, 3])]
    found = list(ahead(maker(), updates, 2, tiny.CPU))
    assert [[piece.rows.tolist() for piece in pieces] for pieces in found] == [[[4, 5], [6]], [[1]], [[2, 3]]]
    assert list(ahead(maker(), [], 2, tiny.CPU)) == []


def test_error_of_the_thread_reaches_the_reader() -> None:
    batches = ahead(maker(), [np.array([1]), np.array([10**6])], 0, tiny.CPU)
    assert len(next(batches)) == 1
    with pytest.raises(IndexError):
        next(batches)


def test_thread_ends_with_its_reader() -> None:
    """A reader that leaves early leaves no thread waiting to put more."""
    before = threading.active_count()
    batches = ahead(maker(), [np.array([1])] * 100, 0, tiny.CPU)
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()  # type: ignore[attr-defined]
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before
