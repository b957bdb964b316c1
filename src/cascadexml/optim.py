"""What moves encoder and level inputs, and the rates of everything: three phases, each a cosine or constant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from cascadexml.config import TrainConfig


@dataclass
class Schedule:
    """Rates rise from a tenth, stay, and fall to zero; `anneal_from` comes forward where a plateau was seen."""

    warmup: float
    anneal: float
    anneal_from: float
    """epochs done when the fall begins"""

    @staticmethod
    def of(config: TrainConfig) -> Schedule:
        return Schedule(config.warmup, config.anneal, config.epochs - config.anneal)

    @property
    def epochs(self) -> float:
        return self.anneal_from + self.anneal

    def factor(self, epochs_done: float) -> float:
        """Share of the full rate after `epochs_done`."""
        if epochs_done < self.warmup:
            return 0.1 + 0.9 * (1 - math.cos(math.pi * epochs_done / self.warmup)) / 2
        if epochs_done < self.anneal_from or not self.anneal:
            return 1.0
        return (1 + math.cos(math.pi * min(1.0, (epochs_done - self.anneal_from) / self.anneal))) / 2


def encoder_optimizer(
    encoder: nn.Module, inputs: nn.Module, config: TrainConfig, device: torch.device
) -> torch.optim.AdamW:
    """AdamW for all that autograd trains; biases and norms (vectors) do not decay."""
    groups = []
    for module, rate, decay in (
        (encoder, config.encoder_rate, config.encoder_decay),
        (inputs, config.head_rate, config.head_decay),
    ):
        trained = [p for p in module.parameters() if p.requires_grad]
        groups.append({"params": [p for p in trained if p.dim() >= 2], "rate": rate, "weight_decay": decay})
        groups.append({"params": [p for p in trained if p.dim() < 2], "rate": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=config.encoder_rate, fused=True)


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["rate"] * factor
