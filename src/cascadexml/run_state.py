"""Where a training run stands: everything that a checkpoint keeps, saved to one file and taken up again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cascadexml.checkpoint import load_checkpoint, save_checkpoint
from cascadexml.model import Model
from cascadexml.optim import Schedule, encoder_optimizer


@dataclass
class Counters:
    """Where a run stands; all of it is in the checkpoint."""

    epoch: int = 0
    """epochs begun and ended"""
    update: int = 0
    """updates done of the epoch under way"""
    moved: int = 0
    """updates in which rows and encoder moved"""
    small_batch: int = 0
    anneal_from: float = 0.0
    best: float = -1.0
    best_epoch: float = 0.0
    waited: int = 0
    """epochs since the best"""
    documents_seen: int = 0
    seconds: float = 0.0
    start_seconds: float = 0.0
    """of the rows' start, before the first update"""
    history: list[dict[str, Any]] = field(default_factory=list)


class RunState:
    """Model, optimiser, schedule, counters and best weights of one run."""

    def __init__(self, model: Model, identity: dict[str, Any]) -> None:
        self.model = model
        self.identity = identity
        config = model.config.train
        self.optimizer = encoder_optimizer(model.encoder, model.cascade.inputs, config, model.device)
        self.scaler = torch.amp.GradScaler(model.device.type, enabled=model.precision == "fp16", init_scale=2.0**12)
        self.schedule = Schedule.of(config)
        self.counters = Counters(small_batch=config.small_batch, anneal_from=self.schedule.anneal_from)
        self.best: dict[str, Tensor] = {}

    def keep_best(self) -> None:
        self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.model.weights().items()}

    def save(self, file: Path) -> None:
        tensors = {f"encoder.{name}": tensor for name, tensor in self.model.encoder.state_dict().items()}
        tensors |= {f"inputs.{name}": tensor for name, tensor in self.model.cascade.inputs.state_dict().items()}
        for level, head in enumerate(self.model.cascade.heads):
            tensors |= {f"heads.{level}.{name}": tensor for name, tensor in head.state().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for at, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{at}.{name}": tensor for name, tensor in state.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.model.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.model.device)
        plain = {"identity": self.identity, "counters": vars(self.counters), "scaler": self.scaler.state_dict()}
        save_checkpoint(file, tensors, plain)

    def load(self, file: Path) -> None:
        """Takes up what `save` wrote, if the run is the same."""
        tensors, plain = load_checkpoint(file)
        _refuse_other(plain["identity"], self.identity)

        def within(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

        self.model.encoder.load_state_dict(within("encoder."))
        self.model.cascade.inputs.load_state_dict(within("inputs."))
        for level, head in enumerate(self.model.cascade.heads):
            head.load_state({name: tensor.to(self.model.device) for name, tensor in within(f"heads.{level}.").items()})
        self.best = within("best.")
        optimizer = self.optimizer.state_dict()
        for full, tensor in within("optimizer.").items():
            at, name = full.split(".")
            optimizer["state"].setdefault(int(at), {})[name] = tensor
        self.optimizer.load_state_dict(optimizer)
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.model.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.model.device)
        self.counters = Counters(**plain["counters"])
        self.schedule.anneal_from = self.counters.anneal_from
        self.scaler.load_state_dict(plain["scaler"])


def _refuse_other(saved: dict[str, Any], now: dict[str, Any]) -> None:
    names = [name for name in sorted(saved.keys() | now.keys()) if saved.get(name) != now.get(name)]
    if names:
        what = [
            "other data" if name == "data" else f"{name} = {saved.get(name)}, now {now.get(name)}" for name in names
        ]
        raise ValueError(
            f"the run to resume was begun with {'; '.join(what)}: give the same, or start anew with --overwrite"
        )
