"""The numbered invariants that hold between levels: 1, 2, 5 and 6 (3 stands with the tree, 4 with the folder)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import torch
from algorithm_1 import algorithm_1
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cascadexml.batches import cut
from cascadexml.cascade import Cascade, common_size, nominal_sizes
from cascadexml.config import ModelConfig
from cascadexml.heads import dense, plain
from cascadexml.heads.plain import PlainHead

SHAPES = [
    (2, (), ()),
    (3, (2,), (1,)),
    (37, (4, 8), (2, 3)),
    (61, (2, 8, 32), (2, 3, 5)),
    (64, (16,), (5,)),
]


def graded(cascade: Cascade, vectors: dict[int, Tensor], batch: Any, num_documents: int | None = None) -> list[Any]:
    """[losses, gradients of vectors, row gradients] of one update in one piece."""
    steps: list[Any] = []

    def act() -> None:
        cascade.begin(torch.tensor(0.1), cascade.rows[0].step + 1)
        steps.append(cascade.step(vectors, batch, num_documents or len(batch)))
        cascade.update()

    rows = tiny.row_gradients(cascade, act)
    return [steps[0].losses, steps[0].gradients, rows]


@pytest.fixture(params=["gather", "dense"])
def plain_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of the plain head, in several slices of documents and of rows."""
    monkeypatch.setattr(plain, "DENSE_FACTOR", 0 if request.param == "gather" else 1 << 30)
    monkeypatch.setattr(plain, "GATHER_ELEMENTS", 300)
    monkeypatch.setattr(plain, "UPDATE_ROWS", 7)
    monkeypatch.setattr(dense, "CHUNK_ELEMENTS", {"cpu": 40})
    return str(request.param)


# --- 1: with everything shortlisted, the final level is one-vs-all ---


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_invariant_1_top_k_at_all_equals_one_vs_all(loss: str, plain_path: str) -> None:
    num_labels, clusters = 37, (4, 8)
    whole = tiny.cascade(num_labels, clusters, clusters, loss=loss, common_size=11)
    alone = tiny.cascade(num_labels, (), (), loss=loss, common_size=11, final="all")
    alone.tree.order[:] = whole.tree.order
    alone.rows[0].weight_LH.copy_(whole.rows[-1].weight_LH)
    alone.rows[0].bias_L.copy_(whole.rows[-1].bias_L)
    labels = tiny.labels_of(9, num_labels)
    vectors = tiny.vectors(9, 3)
    losses, gradients, rows = graded(whole, vectors, tiny.batch(labels, whole.tree))
    losses_1, gradients_1, rows_1 = graded(alone, {1: vectors[3]}, tiny.batch(labels, alone.tree))
    torch.testing.assert_close(losses[-1], losses_1[0])
    torch.testing.assert_close(gradients[-1], gradients_1[0])
    torch.testing.assert_close(rows[-1], rows_1[0])
    by_cascade = whole.predict(vectors, clusters, num_labels, "label")
    over_all = alone.predict_all({1: vectors[3]}, num_labels)
    assert np.array_equal(by_cascade.labels, over_all.labels)
    np.testing.assert_allclose(by_cascade.scores, over_all.scores, rtol=1e-4, atol=1e-6)


def test_invariant_1_dense_final_level_hears_nothing_of_the_levels_above() -> None:
    """The passenger recipe: the final level's gradients are one-vs-all's whatever the shortlists."""
    cascade = tiny.cascade(37, (4, 8), (1, 1), final="all", common_size=11, passengers=(True, True, False))
    alone = tiny.cascade(37, (), (), final="all", common_size=11)
    alone.rows[0].weight_LH.copy_(cascade.rows[-1].weight_LH)
    alone.rows[0].bias_L.copy_(cascade.rows[-1].bias_L)
    labels, vectors = tiny.labels_of(9, 37), tiny.vectors(9, 3)
    _, gradients, rows = graded(cascade, vectors, tiny.batch(labels, cascade.tree))
    _, gradients_1, rows_1 = graded(alone, {1: vectors[3]}, tiny.batch(labels, alone.tree))
    assert torch.equal(gradients[-1], gradients_1[0])
    assert torch.equal(rows[-1][0], rows_1[0][0]) and torch.equal(rows[-1][1], rows_1[0][1])
    assert rows[0][0].any() and rows[1][0].any()
    cascade.begin(torch.tensor(0.1), 2)
    cascade.step(vectors, tiny.batch(labels, cascade.tree), 9).backward()
    assert vectors[1].grad is None and vectors[2].grad is None and vectors[3].grad is not None


# --- 2: grade is autograd through Algorithm 1 ---


def close(found: Any, expected: Any) -> None:
    """To fp32's rounding of the largest entry: sums of opposite signs leave no more of the small ones."""
    for mine, right in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
        most = float(right.abs().max())
        torch.testing.assert_close(mine, right, check_dtype=False, rtol=2e-5, atol=2e-6 * most)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", [{}, {"loss": "softmax"}, {"rescale": False}, {"final": "all"}])
def test_invariant_2_grade_equals_autograd(
    shape: tuple[Any, ...], model: dict[str, Any], plain_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_labels, clusters, top_k = shape
    cascade = tiny.cascade(num_labels, clusters, top_k, **model)
    labels = tiny.labels_of(11, num_labels)
    batch = tiny.batch(labels, cascade.tree)
    assert not (batch.positives[-1].documents == 0).any(), "the first document is without labels"
    vectors = tiny.vectors(11, len(clusters) + 1)
    if model.get("loss") == "softmax":
        divisors = [1.0] * (len(clusters) + 1)
    elif "rescale" in model:
        divisors = [float(size) for size in nominal_sizes(cascade.config, cascade.tree)]
    else:
        divisors = [float(common_size(cascade.config, cascade.tree))] * (len(clusters) + 1)
    expected, expected_rows, _ = algorithm_1(cascade, vectors, batch, divisors)
    _, gradients, rows = graded(cascade, vectors, batch)
    for level, gradient in enumerate(gradients):
        close(gradient, expected[level])
        close(rows[level], expected_rows[level])


@pytest.mark.parametrize("rescale", [True, False])
def test_invariant_2_literal_is_algorithm_1_to_the_letter(rescale: bool) -> None:
    cascade = tiny.cascade(61, (8, 16, 32), (2, 2, 3), literal=True, rescale=rescale)
    batch = tiny.batch(tiny.labels_of(11, 61), cascade.tree)
    vectors = tiny.vectors(11, 4)
    expected, expected_rows, sizes = algorithm_1(cascade, vectors, batch, None)
    assert len({min(of_document) for of_document in sizes}) > 1, "alpha differs from document to document"
    _, gradients, rows = graded(cascade, vectors, batch)
    if rescale:
        for level, gradient in enumerate(gradients):
            close(gradient, expected[level])
            close(rows[level], expected_rows[level])
        return
    # without alpha each document's level is divided by its own |S_t|: the same sums, weighted otherwise
    smallest = torch.tensor([min(of_document) for of_document in sizes])
    for level, gradient in enumerate(gradients):
        own = torch.tensor([of_document[level] for of_document in sizes])
        close(gradient * (own / smallest).unsqueeze(1), expected[level])


@pytest.mark.parametrize("model", [{}, {"loss": "softmax"}, {"final": "all"}])
@pytest.mark.parametrize(("num_documents", "small"), [(256, 64), (20, 5), (11, 4)])
def test_invariant_2_small_batches_equal_the_large_one(
    num_documents: int, small: int, model: dict[str, Any], plain_path: str
) -> None:
    cascade = tiny.cascade(61, (2, 8), (2, 3), **model)
    labels = tiny.labels_of(num_documents, 61)
    vectors = tiny.vectors(num_documents, 3)
    _, gradients, rows = graded(cascade, vectors, tiny.batch(labels, cascade.tree))
    pieces: list[Any] = []

    def act() -> None:
        cascade.begin(torch.tensor(0.1), 2)
        for of_piece in cut(np.arange(num_documents), small):
            batch = tiny.batch(labels, cascade.tree, of_piece)
            pieces.append(cascade.step(tiny.taken(vectors, of_piece), batch, num_documents))
        cascade.update()

    rows_of_pieces = tiny.row_gradients(cascade, act)
    for level in range(3):
        close(torch.cat([step.gradients[level] for step in pieces]), gradients[level])
        close(rows_of_pieces[level], rows[level])


@pytest.mark.parametrize("model", [{}, {"final": "all"}])
def test_grading_moves_no_row_and_discard_forgets_it(model: dict[str, Any]) -> None:
    """Twice the same update, once after another was graded and taken back: the same weights to the last bit."""
    labels, vectors = tiny.labels_of(9, 37), tiny.vectors(9, 3)
    left, right = (tiny.cascade(37, (4, 8), (2, 3), **model) for _ in range(2))
    before = [rows.weight_LH.clone() for rows in left.rows]
    batch = tiny.batch(labels, left.tree)
    left.begin(torch.tensor(0.3), 1)
    left.step(tiny.vectors(9, 3, seed=5), batch, 9)
    left.discard()
    assert all(torch.equal(rows.weight_LH, old) for rows, old in zip(left.rows, before, strict=True))
    for cascade in (left, right):
        cascade.begin(torch.tensor(0.1), 1)
        cascade.step(vectors, batch, 9)
        cascade.update()
    for mine, other, old in zip(left.rows, right.rows, before, strict=True):
        assert torch.equal(mine.weight_LH, other.weight_LH) and torch.equal(mine.bias_L, other.bias_L)
        assert not torch.equal(mine.weight_LH, old)


def test_forget_last_takes_back_one_small_batch() -> None:
    cascade = tiny.cascade(37, (4, 8), (2, 3))
    labels, vectors = tiny.labels_of(9, 37), tiny.vectors(9, 3)
    batch = tiny.batch(labels, cascade.tree)
    _, _, expected = graded(cascade, vectors, batch)

    def act() -> None:
        cascade.begin(torch.tensor(0.1), 2)
        cascade.step(vectors, batch, 9)
        cascade.step(tiny.vectors(9, 3, seed=5), batch, 9)
        for head in cascade.heads:
            head.forget_last()
        cascade.update()

    found = tiny.row_gradients(cascade, act)
    for level in range(3):
        assert torch.equal(found[level][0], expected[level][0]) and torch.equal(found[level][1], expected[level][1])


# --- 5: what is scored ---


def test_invariant_5_pairs_scored_are_children_and_uncovered_positives(monkeypatch: pytest.MonkeyPatch) -> None:
    cascade = tiny.cascade(61, (2, 8, 32), (1, 2, 3))
    batch = tiny.batch(tiny.labels_of(12, 61), cascade.tree)
    seen: list[Tensor] = []
    covered: list[int] = []
    original = PlainHead.grade

    def grade(self: PlainHead, *given: Any) -> Any:
        done = original(self, *given)
        seen.append(done.sizes_B)
        covered.append(int(done.num_covered))
        return done

    monkeypatch.setattr(PlainHead, "grade", grade)
    vectors = tiny.vectors(12, 4)
    cascade.begin(torch.tensor(0.1), 1)
    step = cascade.step(vectors, batch, 12)
    _, _, sizes = algorithm_1(cascade, vectors, batch, [1.0] * 4)
    assert torch.stack(seen).T.tolist() == [of_document[1:] for of_document in sizes]
    assert [int(n) for n in step.num_covered[1:]] == covered
    assert step.num_positives == tuple(len(positives.nodes) for positives in batch.positives)
    # some positives were missed by the shortlists, some not: neither branch of the union is empty here
    assert any(0 < found < all_of for found, all_of in zip(covered, step.num_positives[1:], strict=True))


# --- 6: nothing of N x L, nor of B x L where a level is dense ---


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        out = function(*arguments, **(options or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_invariant_6_no_table_of_documents_by_labels(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "CHUNK_ELEMENTS", {"cpu": 1 << 13})
    num_labels, num_documents = 1 << 12, 64
    cascade = tiny.cascade(num_labels, (16, 256), (4, 4), width=4, final="all", loss=loss, rule="adamw_full")
    labels, vectors = tiny.labels_of(num_documents, num_labels), tiny.vectors(num_documents, 3, width=4)
    batch = tiny.batch(labels, cascade.tree)
    with Largest() as watched:
        cascade.begin(torch.tensor(0.1), 1)
        cascade.step(vectors, batch, num_documents)
        cascade.update()
        cascade.predict_all(vectors, 5)
        cascade.predict(vectors, (4, 4), 5, "path")
        assert cascade.shortlist_recall(vectors, (4, 4), batch.positives)[1] >= 0
    table = num_labels * 4
    assert table <= watched.elements <= 1.5 * table < num_documents * num_labels / 8


# --- the loss scale ---


def test_common_size_is_the_smallest_nominal_shortlist() -> None:
    config = ModelConfig(clusters=(512, 4096), top_k=(64, 68))
    tree = tiny.tree(30_938, (512, 4096))
    assert nominal_sizes(config, tree) == [512, 512, round(68 * 30_938 / 4096)]
    assert common_size(config, tree) == 512
    assert common_size(ModelConfig(clusters=(2048, 4096), top_k=(2048, 4096)), tiny.tree(9000, (2048, 4096))) == 1024
    alone = tiny.cascade(37, (), ())
    assert common_size(alone.config, alone.tree) == 512
    assert common_size(tiny.cascade(37, (4,), (2,), common_size=7).config, tiny.tree(37, (4,))) == 7
