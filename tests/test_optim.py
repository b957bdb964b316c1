"""Rates over a run, and which parameters decay."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tiny
import torch

from cascadexml.config import TrainConfig
from cascadexml.optim import Schedule, encoder_optimizer, set_rates


def test_three_phases() -> None:
    schedule = Schedule.of(TrainConfig(epochs=15.0, warmup=2.0, anneal=3.0))
    assert schedule.epochs == 15.0
    assert schedule.factor(0.0) == pytest.approx(0.1)
    assert schedule.factor(1.0) == pytest.approx(0.55)
    assert [schedule.factor(at) for at in (2.0, 7.3, 11.99)] == [1.0] * 3
    assert schedule.factor(12.0) == 1.0
    assert schedule.factor(13.5) == pytest.approx(0.5)
    assert schedule.factor(13.0) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)
    assert schedule.factor(15.0) == schedule.factor(16.0) == pytest.approx(0.0)
    values = np.array([schedule.factor(at) for at in np.linspace(0, 15, 500)])
    # without a jump anywhere
    assert np.abs(np.diff(values)).max() < 0.03


def test_phases_that_are_left_out() -> None:
    constant = Schedule.of(TrainConfig(epochs=2.0, warmup=0.0, anneal=0.0))
    assert [constant.factor(at) for at in (0.0, 1.0, 2.0)] == [1.0] * 3
    falling = Schedule.of(TrainConfig(epochs=2.0, warmup=0.0, anneal=2.0))
    assert falling.factor(0.0) == 1.0 and falling.factor(1.0) == pytest.approx(0.5)
    rising = Schedule.of(TrainConfig(epochs=2.0, warmup=2.0, anneal=0.0))
    assert rising.factor(1.0) == pytest.approx(0.55) and rising.factor(2.0) == 1.0


def test_annealing_brought_forward() -> None:
    schedule = Schedule.of(TrainConfig(epochs=15.0, warmup=1.0, anneal=3.0))
    schedule.anneal_from = 5.0
    assert schedule.epochs == 8.0
    assert schedule.factor(5.0) == 1.0 and schedule.factor(6.5) == pytest.approx(0.5) and schedule.factor(8.0) == 0.0


def test_groups_of_parameters() -> None:
    encoder = tiny.backbone()
    inputs = torch.nn.ModuleList([torch.nn.Linear(4, 2)])
    for parameter in encoder.embeddings.parameters():  # type: ignore[union-attr]
        parameter.requires_grad_(False)
    config = TrainConfig(encoder_rate=1e-4, head_rate=1e-2, encoder_decay=0.05, head_decay=0.005)
    optimizer = encoder_optimizer(encoder, inputs, config, tiny.CPU)
    of_parameter = {p: group for group in optimizer.param_groups for p in group["params"]}
    trained = [p for module in (encoder, inputs) for p in module.parameters() if p.requires_grad]
    assert set(of_parameter) == set(trained) and len(of_parameter) == len(trained)
    names = {p: name for name, p in encoder.named_parameters()}
    for parameter, group in of_parameter.items():
        if parameter in names:
            is_plain = names[parameter].endswith("bias") or "LayerNorm" in names[parameter]
            assert (group["rate"], group["weight_decay"]) == (1e-4, 0.0 if is_plain else 0.05)
    layer = inputs[0]
    assert (of_parameter[layer.weight]["rate"], of_parameter[layer.weight]["weight_decay"]) == (1e-2, 0.005)
    assert (of_parameter[layer.bias]["rate"], of_parameter[layer.bias]["weight_decay"]) == (1e-2, 0.0)
    set_rates(optimizer, 0.5)
    assert sorted({group["lr"] for group in optimizer.param_groups}) == [0.5e-4, 0.5e-2]


def test_xlnets_norms_do_not_decay() -> None:
    encoder = tiny.backbone("xlnet")
    optimizer = encoder_optimizer(encoder, torch.nn.ModuleList(), TrainConfig(), tiny.CPU)
    of_parameter = {p: group for group in optimizer.param_groups for p in group["params"]}
    norms = [p for name, p in encoder.named_parameters() if "layer_norm" in name]
    assert norms and all(of_parameter[p]["weight_decay"] == 0 for p in norms)
