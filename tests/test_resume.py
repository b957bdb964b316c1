"""Runs that are stopped or killed and go on: bit for bit the weights of one that never was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from cascadexml import training_run as training
from cascadexml.config import override
from cascadexml.prepared import Prepared
from cascadexml.train import Trained
from cascadexml.training_run import CHECKPOINT, Stopped


def assert_same_run(left: Trained, right: Trained) -> None:
    tiny.assert_same_weights(left, right)
    without_time = [[{**record, "seconds": 0} for record in done.history] for done in (left, right)]
    assert without_time[0] == without_time[1]
    assert left.choice == right.choice
    assert left.epochs == right.epochs


class Killed(Exception):
    pass


def killed_before(update: int, monkeypatch: pytest.MonkeyPatch, how: Callable[[], None]) -> None:
    """`how` happens in place of the given update of a run, counted from 1."""
    made = [0]
    original = training.TrainingRun._update

    def count(self: Any, *given: Any) -> None:
        made[0] += 1
        if made[0] == update:
            how()
        original(self, *given)

    monkeypatch.setattr(training.TrainingRun, "_update", count)


def kill() -> None:
    raise Killed


SCHEDULES = {
    "rows all moved": ({"update_rule": "adamw_full"}, {}),
    "rows touched moved": ({"update_rule": "adamw", "small_batch": 20}, tiny.AUTO_LIKE),
}


@pytest.mark.parametrize("named", list(SCHEDULES))
def test_killed_and_resumed_equals_never_killed(
    data: Prepared, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Bit for bit: dropout, order of batches, moments, steps, best epoch and choice all go on where they were."""
    train_fields, model_fields = SCHEDULES[named]
    config = tiny.config(encoder, model_fields, {**train_fields, "epochs": 2.5, "checkpoint_minutes": 0.0})
    whole = tiny.trained(data, config)
    an_epoch = -(-len(data.training) // 32)
    for update in (2, an_epoch + 1, an_epoch + 4, 2 * an_epoch + 3):
        folder = tmp_path / str(update)
        with monkeypatch.context() as context:
            killed_before(update, context, kill)
            with pytest.raises(Killed):
                tiny.trained(data, config, run=folder)
        torch.manual_seed(99)
        resumed = tiny.trained(data, config, run=folder, resume=True)
        assert_same_run(resumed, whole)


def test_stopped_by_a_signal_and_resumed(
    data: Prepared, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update under way is finished and saved; also where it is an epoch's last."""
    config = tiny.config(encoder, train={"epochs": 1.5})
    whole = tiny.trained(data, config)
    an_epoch = -(-len(data.training) // 32)
    for number, update in ((signal.SIGTERM, 3), (signal.SIGINT, an_epoch)):
        folder = tmp_path / str(update)
        before = signal.getsignal(number)
        with monkeypatch.context() as context:
            killed_before(update, context, lambda number=number: os.kill(os.getpid(), number))  # type: ignore[misc]
            with pytest.raises(Stopped, match=rf"stopped at epoch {update / an_epoch:.2f}; .* go on with --resume"):
                tiny.trained(data, config, run=folder)
        assert signal.getsignal(number) == before
        assert_same_run(tiny.trained(data, config, run=folder, resume=True), whole)


def test_a_signal_in_the_last_update_loses_nothing(
    data: Prepared, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the run then ends or is resumed: its last epoch is measured before the best one is kept."""
    config = tiny.config(encoder, train={"epochs": 1.5})
    whole = tiny.trained(data, config)
    total = round(1.5 * -(-len(data.training) // 32))
    with monkeypatch.context() as context:
        killed_before(total, context, lambda: os.kill(os.getpid(), signal.SIGTERM))
        try:
            done = tiny.trained(data, config, run=tmp_path)
        except Stopped:
            done = None
    assert_same_run(done or tiny.trained(data, config, run=tmp_path, resume=True), whole)


def test_stopped_without_a_folder_is_interrupted(few: Prepared, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_before(1, monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        tiny.trained(few, tiny.config(encoder))


def test_resume_refuses_other_data_and_settings(
    few: Prepared, data: Prepared, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config(encoder)
    with monkeypatch.context() as context:
        killed_before(3, context, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped):
            tiny.trained(few, config, run=tmp_path)
    kept = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(ValueError, match="begun with other data: give the same, or start anew with --overwrite"):
        tiny.trained(data, config, run=tmp_path, resume=True)
    for name, value, shown in (
        ("train.head_rate", 0.5, "0.02, now 0.5"),
        ("train.seed", 3, "0, now 3"),
        ("model.top_k", (1, 1), r"\[2, 4\], now \[1, 1\]"),
    ):
        with pytest.raises(ValueError, match=rf"begun with {name} = {shown}"):
            tiny.trained(few, override(config, {name: value}), run=tmp_path, resume=True)
    with pytest.raises(ValueError, match="refit = False, now True"):
        tiny.trained(few, config, run=tmp_path, resume=True, everything=True)
    assert (tmp_path / CHECKPOINT).read_bytes() == kept
