"""Training: it learns, it stops and goes on, it makes do with less memory; all on a random two-layer BERT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from cascadexml import training_run as training
from cascadexml.config import override
from cascadexml.heads.rows import Rows
from cascadexml.model import Model
from cascadexml.predict import predict
from cascadexml.prepared import Prepared
from cascadexml.train import Trained


def weights(done: Trained) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in done.model.weights().items()}


def first_right(data: Prepared, done: Trained) -> float:
    """P@1 in per cent on the documents held out."""
    part = data.validation_part()
    assert part is not None
    best = predict(done.model, part.tokens, 1).labels[:, 0]
    return 100 * float(np.mean(np.asarray(part.known.labels[np.arange(len(part)), best]).ravel()))


# --- it learns ---


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"pooling": "mean", "rescale": False},
        tiny.AUTO_LIKE,
        {**tiny.AUTO_LIKE, "loss": "softmax"},
        {"pooling": "mean", "clusters": (), "layers": ((2,),), "top_k": (), "dropout": (0.1,), "passengers": (False,),
         "start": ("centroids",), "final": "all"},
    ],
    ids=["paper", "paper mean", "auto", "auto softmax", "one-vs-all centroids"],
)  # fmt: skip
def test_learns_what_the_words_say(data: Prepared, encoder: str, model: dict[str, Any]) -> None:
    """A random answer is right in 8 of 100, the commonest label hardly more often."""
    config = tiny.config(encoder, model, {"epochs": 25.0, "anneal": 8.0})
    done = tiny.trained(data, config)
    assert first_right(data, done) > 50
    assert done.choice is not None and done.choice.by_cascade > 40
    assert [record["epoch"] for record in done.history] == list(range(1, 26))


def test_the_rule_that_moves_touched_rows_learns_too(data: Prepared, encoder: str) -> None:
    done = tiny.trained(
        data, tiny.config(encoder, {"pooling": "mean"}, {"epochs": 25.0, "anneal": 8.0, "update_rule": "adamw"})
    )
    assert first_right(data, done) > 50


def test_seed_decides_everything(few: Prepared, encoder: str) -> None:
    config = tiny.config(encoder)
    first, second = tiny.trained(few, config), tiny.trained(few, config)
    tiny.assert_same_weights(first, second)
    other = tiny.trained(few, override(config, {"train.seed": 1}))
    assert not torch.equal(first.model.cascade.rows[-1].weight_LH, other.model.cascade.rows[-1].weight_LH)


def test_best_epoch_is_kept(data: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([1.0, 5.0, 4.0, 3.0])
    at_best: list[dict[str, torch.Tensor]] = []
    original = training.TrainingRun._validate

    def validate(self: Any) -> dict[str, Any]:
        value = next(values)
        monkeypatch.setattr(training, "metric_of", lambda *_: value)
        if value == 5.0:
            at_best.append({name: tensor.clone() for name, tensor in self.model.weights().items()})
        return original(self)

    monkeypatch.setattr(training.TrainingRun, "_validate", validate)
    done = tiny.trained(data, tiny.config(encoder, train={"epochs": 4.0}))
    assert [record["validation P"] for record in done.history] == [1.0, 5.0, 4.0, 3.0]
    kept = weights(done)
    assert all(torch.equal(kept[name], tensor) for name, tensor in at_best[0].items())


# --- the schedule ---


def test_a_plateau_starts_the_annealing_and_never_skips_it(
    data: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "metric_of", lambda *_: 7.0)
    rates: list[float] = []
    original = training.set_rates
    monkeypatch.setattr(training, "set_rates", lambda o, factor: (rates.append(factor), original(o, factor)))
    done = tiny.trained(data, tiny.config(encoder, train={"epochs": 30.0, "warmup": 1.0, "anneal": 2.0, "plateau": 2}))
    # epoch 1 is the best, 2 and 3 are no better, then the two epochs of annealing
    assert done.epochs == 5.0 and len(done.history) == 5
    an_epoch = -(-len(data.training) // 32)
    assert len(rates) == 5 * an_epoch
    assert rates[0] == pytest.approx(0.1)
    assert rates[an_epoch : 3 * an_epoch] == [1.0] * (2 * an_epoch)
    falling = rates[3 * an_epoch :]
    assert falling[0] == 1.0 and falling == sorted(set(falling), reverse=True) and falling[-1] < 0.05


def test_fractions_of_an_epoch_end_where_they_say(few: Prepared, encoder: str) -> None:
    """60 documents in batches of 16 are 4 updates an epoch."""
    for epochs, updates in ((0.25, 1), (1.5, 6), (0.01, 1), (2.0, 8)):
        log = tiny.Heard()
        given = {"epochs": epochs, "warmup": 0.0, "anneal": epochs, "batch_size": 16}
        done = tiny.trained(few, tiny.config(encoder, train=given), log=log)
        last = [fields for kind, fields in log.events if kind == "epoch"][-1]
        assert last["update"] == updates
        assert done.history[-1]["epoch"] == updates / 4


# --- memory ---


def test_out_of_memory_halves_and_accumulates(few: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout the run then equals, to the last bit, one that accumulated from the beginning."""
    encoder = tiny.save_encoder(tmp_path / "bert")
    still = {"dropout": (0.0, 0.0, 0.0)}
    expected = tiny.trained(few, tiny.config(encoder, still, {"small_batch": 8}))
    failing = iter([True, True])
    original = Model.encode

    def encode(self: Model, batch: Any) -> Any:
        if len(batch) > 8 and next(failing, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, batch)

    monkeypatch.setattr(Model, "encode", encode)
    log = tiny.Heard()
    done = tiny.trained(few, tiny.config(encoder, still), log=log)
    tiny.assert_same_weights(done, expected)
    said = "\n".join(log.said)
    assert "out of memory: batches of 32 documents are now accumulated from 16 at a time" in said
    assert "batches of 16 documents are now accumulated from 8 at a time" in said
    assert ("out of memory", {"small_batch": 8, "update": 0}) in log.events


def test_out_of_memory_in_the_middle_of_an_update_grades_nothing_twice(
    few: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny.save_encoder(tmp_path / "bert")
    still, accumulated = {"dropout": (0.0, 0.0, 0.0)}, {"small_batch": 16, "update_rule": "adamw"}
    expected = tiny.trained(few, tiny.config(encoder, still, accumulated))
    calls = [0]
    original = Model.encode

    def encode(self: Model, batch: Any) -> Any:
        calls[0] += 1
        # the second piece of the second update
        if calls[0] == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, batch)

    monkeypatch.setattr(Model, "encode", encode)
    done = tiny.trained(few, tiny.config(encoder, still, accumulated))
    assert done.model.cascade.rows[0].step == 4
    for name, tensor in weights(done).items():
        torch.testing.assert_close(tensor, expected.model.weights()[name], rtol=1e-3, atol=1e-4)


def test_out_of_memory_with_one_document_is_an_error(
    few: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(self: Model, batch: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Model, "encode", encode)
    with pytest.raises(ValueError, match=r"out of memory with one document at a time: lower model\.max_tokens"):
        tiny.trained(few, tiny.config(encoder))


def test_other_errors_are_not_taken_for_memory(few: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(self: Model, batch: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(Model, "encode", encode)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        tiny.trained(few, tiny.config(encoder))


@pytest.mark.parametrize("model", [{}, tiny.AUTO_LIKE, {"loss": "softmax"}])
def test_accumulation_equals_the_large_batch(
    few: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]
) -> None:
    """One update from pieces of 5 and a last one of 2: the same gradients of encoder, maps and rows.

    Weights are not compared: some parameters (keys' biases) have no gradient but rounding, which Adam magnifies.
    """
    encoder = tiny.save_encoder(tmp_path / "bert")
    gradients: list[torch.Tensor] = []
    original, apply = training.TrainingRun._step_optimizer, Rows.apply

    def step_optimizer(self: Any) -> bool:
        parameters = [p for group in self.state.optimizer.param_groups for p in group["params"]]
        gradients.extend(p.grad.clone() for p in parameters if p.grad is not None)
        return original(self)

    def apply_and_keep(self: Rows, rows: Any, gradient_RH: torch.Tensor, gradient_R: torch.Tensor) -> None:
        gradients.extend([gradient_RH.clone(), gradient_R.clone()])
        apply(self, rows, gradient_RH, gradient_R)

    monkeypatch.setattr(training.TrainingRun, "_step_optimizer", step_optimizer)
    monkeypatch.setattr(Rows, "apply", apply_and_keep)
    of_run: list[list[torch.Tensor]] = []
    for small in (0, 5):
        gradients.clear()
        given = {"epochs": 0.5, "warmup": 0.0, "anneal": 0.0, "small_batch": small}
        tiny.trained(few, tiny.config(encoder, {**model, "dropout": (0.0, 0.0, 0.0)}, given))
        of_run.append(list(gradients))
    assert len(of_run[0]) == len(of_run[1]) > 30
    for large, small_ones in zip(*of_run, strict=True):
        torch.testing.assert_close(small_ones, large, rtol=1e-3, atol=1e-6)
