"""The heads behind their door: both losses, both heads, the update rules, and the best nodes by every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, logsigmoid

from cascadexml.batches import positives_of
from cascadexml.heads import Grade, Head, dense, plain
from cascadexml.heads.dense import DenseHead
from cascadexml.heads.losses import bce_difference, bce_loss, log_scores, softmax_difference, softmax_loss
from cascadexml.heads.plain import PlainHead
from cascadexml.heads.rows import BETAS, EPSILON, Rows, UpdateRule
from cascadexml.shortlist import ALL

WIDTH = 5


def rows_of(num_rows: int, rule: str = "adamw_full", decay: float = 0.1) -> Rows:
    rows = Rows(num_rows, WIDTH, UpdateRule(rule, decay), tiny.CPU)
    rows.start_random(torch.Generator().manual_seed(1), -0.5)
    rows.weight_LH.mul_(30)
    return rows


def positives(num_documents: int, num_labels: int) -> Any:
    return positives_of(np.arange(num_documents), tiny.labels_of(num_documents, num_labels), tiny.tree(num_labels, ()))[
        0
    ]


def vectors(num_documents: int, seed: int = 0) -> Tensor:
    return torch.randn(num_documents, WIDTH, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_losses_and_their_gradients_equal_torchs(loss: str) -> None:
    logits = vectors(7).double().mul(4).requires_grad_()
    targets = (vectors(7, 1) > 0.7).double()
    valid = torch.ones_like(targets, dtype=torch.bool)
    if loss == "bce":
        expected = binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        found, difference = bce_loss(logits, targets, valid), bce_difference(logits, targets, valid)
    else:
        norm, count = logits.logsumexp(1), targets.sum(1)
        expected = -(targets * log_softmax(logits, 1)).sum()
        found = softmax_loss(logits, targets, valid, norm)
        difference = softmax_difference(logits, targets, valid, norm, count)
    (gradient,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(difference, gradient)


def test_losses_of_large_logits_stay_finite() -> None:
    logits = torch.tensor([[-2e4, 2e4, 0.0]])
    targets, valid = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[True, True, False]])
    assert float(bce_loss(logits, targets, valid)) == 4e4
    assert bce_difference(logits, targets, valid).tolist() == [[-1.0, 1.0, 0.0]]
    masked = logits.masked_fill(~valid, -torch.inf)
    norm = masked.logsumexp(1)
    assert float(softmax_loss(logits, targets, valid, norm)) == 4e4
    assert softmax_difference(logits, targets, valid, norm, targets.sum(1)).tolist() == [[-1.0, 1.0, 0.0]]
    assert log_scores("bce", masked, None)[0, 2] == log_scores("softmax", masked, norm)[0, 2] == -torch.inf


def graded(head: Head, x_BH: Tensor, pairs: Any, scale: Tensor, k: int) -> tuple[Grade, Tensor, Tensor]:
    """The grade, and the rows as they are after the update."""
    head.begin(torch.tensor(0.05), 1)
    grade = head.grade(x_BH, ALL, pairs, scale, k)
    head.update()
    state = head.state()
    return grade, state["weight"].clone(), state["bias"].clone()


@pytest.mark.parametrize("loss", ["bce", "softmax"])
@pytest.mark.parametrize("num_labels", [1, 2, 7, 61])
@pytest.mark.parametrize("scale", [torch.tensor(0.01), torch.linspace(0.001, 0.02, 11)])
def test_chunked_dense_head_equals_the_plain_one(
    loss: str, num_labels: int, scale: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 1 to all rows; the last one shorter than the others."""
    x_BH, pairs = vectors(11), positives(11, num_labels)
    expected = graded(PlainHead(rows_of(num_labels), None, loss), x_BH, pairs, scale, 4)
    for elements in (1, 11 * 5, 11 * 1000):
        monkeypatch.setattr(dense, "CHUNK_ELEMENTS", {"cpu": elements})
        found = graded(DenseHead(rows_of(num_labels), None, loss), x_BH, pairs, scale, 4)
        torch.testing.assert_close(found[0].loss, expected[0].loss)
        torch.testing.assert_close(found[0].gradient_BH, expected[0].gradient_BH, rtol=1e-4, atol=1e-8)
        assert found[0].sizes_B.tolist() == expected[0].sizes_B.tolist() == [num_labels] * 11
        assert int(found[0].num_covered) == int(expected[0].num_covered) == len(pairs.nodes)
        torch.testing.assert_close(found[1:], expected[1:], rtol=1e-4, atol=1e-4)
        assert found[0].top is not None and expected[0].top is not None
        # where there are fewer nodes than asked for, the plain head leaves slots empty
        width = min(4, num_labels)
        assert found[0].top.ids_BK[:, :width].tolist() == expected[0].top.ids_BK[:, :width].tolist()
        assert (found[0].top.ids_BK[:, width:] == -1).all() and (expected[0].top.ids_BK[:, width:] == -1).all()
        torch.testing.assert_close(found[0].top.scores_BK[:, :width], expected[0].top.scores_BK[:, :width])


@pytest.mark.parametrize("kind", [PlainHead, DenseHead])
@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_best_of_all_labels(kind: Any, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "CHUNK_ELEMENTS", {"cpu": 60})
    rows, x_BH = rows_of(61), vectors(11)
    logits = x_BH @ rows.weight_LH.T + rows.bias_L
    expected = logsigmoid(logits) if loss == "bce" else log_softmax(logits, 1)
    for k in (1, 5, 61, 100):
        found = kind(rows, None, loss).top(x_BH, ALL, k, "label")
        values, ids = expected.topk(min(k, 61), dim=1)
        assert found.ids_BK.tolist() == ids.tolist()
        torch.testing.assert_close(found.scores_BK, values, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.own_BK, values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [PlainHead, DenseHead])
def test_documents_without_labels_pull_every_score_down(kind: Any) -> None:
    rows = rows_of(9)
    pairs = positives_of(np.arange(3), tiny.labels_of(1, 9)[[0, 0, 0]], tiny.tree(9, ()))[0]
    assert len(pairs.nodes) == 0 and pairs.most == 0
    grade, _, bias = graded(kind(rows, None, "bce"), vectors(3), pairs, torch.tensor(1.0), 2)
    assert (bias < -0.5).all() and float(grade.loss) > 0 and int(grade.num_covered) == 0
    grade, _, bias = graded(kind(rows_of(9), None, "softmax"), vectors(3), pairs, torch.tensor(1.0), 2)
    assert float(grade.loss) == 0 and not grade.gradient_BH.any() and torch.equal(bias, torch.full((9,), -0.5))


# --- update rules ---


class Reference:
    """torch.optim.AdamW on one level, its gradients given."""

    def __init__(self, rows: Rows) -> None:
        self.weight, self.bias = rows.weight_LH.clone().requires_grad_(), rows.bias_L.clone().requires_grad_()
        groups = [
            {"params": [self.weight], "weight_decay": rows.rule.weight_decay},
            {"params": [self.bias], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON, foreach=False)

    def step(self, lr: float, weight: Tensor, bias: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.weight.grad, self.bias.grad = weight, bias
        self.optimizer.step()


RATES = [0.01, 0.03, 0.05, 0.05, 0.02, 0.04, 0.01]


@pytest.mark.parametrize("rule", ["adamw_full", "adamw"])
def test_where_all_rows_are_touched_both_rules_are_torchs_adamw(rule: str) -> None:
    rows = rows_of(7, rule)
    reference = Reference(rows)
    for step, lr in enumerate(RATES, 1):
        weight, bias = vectors(7, step), vectors(7, 50 + step)[:, 0].contiguous()
        rows.begin(torch.tensor(lr), step)
        for part in (slice(0, 3), slice(3, 7)):
            rows.apply(part if rule == "adamw_full" else torch.arange(7)[part], weight[part], bias[part])
        reference.step(lr, weight, bias)
        torch.testing.assert_close(rows.weight_LH, reference.weight.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(rows.bias_L, reference.bias.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [PlainHead, DenseHead])
def test_heads_update_by_torchs_adamw(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From scores to rows over several updates, moments included."""
    monkeypatch.setattr(plain, "UPDATE_ROWS", 4)
    monkeypatch.setattr(dense, "CHUNK_ELEMENTS", {"cpu": 70})
    rows, pairs = rows_of(13), positives(11, 13)
    reference, head = Reference(rows), kind(rows, None, "bce")
    for step, lr in enumerate(RATES, 1):
        x_BH = vectors(11, step)
        targets = torch.zeros(11, 13)
        targets[pairs.documents, pairs.nodes] = 1
        logits = x_BH @ reference.weight.T + reference.bias
        reference.optimizer.zero_grad()
        (0.3 * binary_cross_entropy_with_logits(logits, targets, reduction="sum")).backward()
        reference.step(lr, reference.weight.grad, reference.bias.grad)  # type: ignore[arg-type]
        head.begin(torch.tensor(lr), step)
        head.grade(x_BH, ALL, pairs, torch.tensor(0.3), 0)
        head.update()
        torch.testing.assert_close(rows.weight_LH, reference.weight.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows.bias_L, reference.bias.detach(), rtol=1e-4, atol=1e-5)


def test_lazy_rows_make_up_what_they_missed() -> None:
    """Row 0 is touched in steps 1 and 6 of 7, row 1 never: decay and moments follow their closed form."""
    rows = rows_of(2, "adamw", decay=0.2)
    start, bias = rows.weight_LH.clone(), rows.bias_L.clone()
    touched = {1: vectors(1, 1), 6: vectors(1, 6)}
    for step, lr in enumerate(RATES, 1):
        rows.begin(torch.tensor(lr), step)
        if step in touched:
            rows.apply(torch.tensor([0]), touched[step], touched[step][:, 0])
    kept = [1 - lr * 0.2 for lr in RATES]

    def moved(value: Tensor, gradient_1: Tensor, gradient_6: Tensor, kept: list[float]) -> Tensor:
        value = value * kept[0] - RATES[0] * gradient_1 / (gradient_1.abs() + EPSILON)
        first = gradient_1 * 0.1 * 0.9**5 + gradient_6 * 0.1
        second = gradient_1**2 * 0.001 * 0.999**5 + gradient_6**2 * 0.001
        size = (first / (1 - 0.9**6)) / ((second / (1 - 0.999**6)).sqrt() + EPSILON)
        return (value * float(np.prod(kept[1:6])) - RATES[5] * size).float()

    expected = moved(start[0], touched[1][0], touched[6][0], kept)
    torch.testing.assert_close(rows.weight_LH[0], expected)
    # biases never decay, neither when they are touched nor afterwards
    expected_bias = moved(bias[0], touched[1][0, 0], touched[6][0, 0], [1.0] * 7)
    torch.testing.assert_close(rows.bias_L[0], expected_bias)
    assert torch.equal(rows.weight_LH[1], start[1]) and torch.equal(rows.bias_L[1], bias[1])
    rows.settle()
    torch.testing.assert_close(rows.weight_LH[0], expected * kept[6])
    torch.testing.assert_close(rows.weight_LH[1], start[1] * float(np.prod(kept)))
    torch.testing.assert_close(rows.bias_L, torch.stack([expected_bias, bias[1]]))
    settled = rows.weight_LH.clone()
    rows.settle()
    assert torch.equal(rows.weight_LH, settled)


def test_settling_in_between_changes_nothing_but_rounding() -> None:
    left, right = rows_of(4, "adamw"), rows_of(4, "adamw")
    for step in range(1, 8):
        at = torch.tensor([step % 4, (step + 1) % 4])
        for rows in (left, right):
            rows.begin(torch.tensor(0.05), step)
            rows.apply(at, vectors(2, step), vectors(2, step)[:, 0])
        left.settle()
    right.settle()
    torch.testing.assert_close(left.weight_LH, right.weight_LH)
    for mine, other in zip(left.moments, right.moments, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("rule", ["adamw_full", "adamw"])
@pytest.mark.parametrize("settled", [False, True])
def test_state_goes_on_to_the_last_bit(rule: str, settled: bool) -> None:
    """Also beyond the table of rates that a run begins with."""

    def update(rows: Rows, step: int) -> None:
        rows.begin(torch.tensor(0.05 / step), step)
        at = slice(0, 4) if rule == "adamw_full" else torch.tensor([step % 4])
        num_rows = 4 if rule == "adamw_full" else 1
        rows.apply(at, vectors(num_rows, step), vectors(num_rows, step)[:, 0])

    rows = rows_of(4, rule)
    for step in range(1, 1030):
        update(rows, step)
    if settled:
        rows.settle()
    again = rows_of(4, rule)
    again.load_state({name: tensor.clone() for name, tensor in rows.state().items()})
    for step in range(1030, 2060):
        update(rows, step)
        update(again, step)
    rows.settle()
    again.settle()
    assert torch.equal(rows.weight_LH, again.weight_LH) and torch.equal(rows.bias_L, again.bias_L)
    assert torch.isfinite(rows.weight_LH).all()


def test_steps_count_up_by_one() -> None:
    rows = rows_of(4)
    rows.begin(torch.tensor(0.1), 1)
    with pytest.raises(AssertionError, match="steps count up by one"):
        rows.begin(torch.tensor(0.1), 1)
    rows.skip()
    rows.begin(torch.tensor(0.1), 1)
