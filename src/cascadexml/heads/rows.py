"""One level's rows with the state of their update rule; every head keeps its numbers in one of these.

`adamw_full` is torch.optim.AdamW on the whole table. `adamw` moves only the rows an update touched; what weight and
moments would have decayed in the steps missed is made up at the next touch. Where every row is touched they are one.
Shapes: L rows, H hidden, R rows of one chunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclass(frozen=True)
class UpdateRule:
    name: str = "adamw_full"
    weight_decay: float = 0.005

    @property
    def touches_all(self) -> bool:
        return self.name == "adamw_full"


class Rows:
    """Weight, bias, moments, and an int32 step a row where the rule is lazy."""

    def __init__(self, num_rows: int, width: int, rule: UpdateRule, device: torch.device, trained: bool = True) -> None:
        self.rule = rule
        self.weight_LH = torch.zeros(num_rows, width, device=device)
        self.bias_L = torch.zeros(num_rows, device=device)
        self.step = 0
        self.lr = torch.zeros((), device=device)
        if trained:
            self.moments = [torch.zeros_like(t) for t in (self.weight_LH, self.weight_LH, self.bias_L, self.bias_L)]
            self.seen_L = torch.zeros(0 if rule.touches_all else num_rows, dtype=torch.int32, device=device)
            # log of what weight decay has left of a row after each step; grows by doubling
            self.log_decay = torch.zeros(1024, dtype=torch.float64, device=device)

    def __len__(self) -> int:
        return len(self.weight_LH)

    def start_random(self, generator: torch.Generator, bias: float) -> None:
        self.weight_LH.copy_(torch.randn(self.weight_LH.shape, generator=generator) * 0.02)
        self.bias_L.fill_(bias)

    def begin(self, lr: Tensor, step: int) -> None:
        assert step == self.step + 1, "steps count up by one"
        self.lr, self.step = lr, step
        if step >= len(self.log_decay):
            self.log_decay = torch.cat([self.log_decay, torch.zeros_like(self.log_decay)])
        self.log_decay[step] = self.log_decay[step - 1] + torch.log1p(-lr.double() * self.rule.weight_decay)

    def skip(self) -> None:
        """The step begun is taken back: nothing moved."""
        self.step -= 1

    def apply(self, rows: slice | Tensor, gradient_RH: Tensor, gradient_R: Tensor) -> None:
        """Moves `rows` (a slice, or unique positions) by their exact gradients."""
        if self.rule.touches_all:
            assert isinstance(rows, slice)
            self._adamw(rows, gradient_RH, gradient_R, None)
            return
        missed_R = (self.step - 1 - self.seen_L[rows]).float()
        left_R = torch.exp(self.log_decay[self.step - 1] - self.log_decay[self.seen_L[rows].long()]).float()
        self._adamw(rows, gradient_RH, gradient_R, (missed_R, left_R))
        self.seen_L[rows] = self.step

    def _adamw(
        self, rows: slice | Tensor, gradient_RH: Tensor, gradient_R: Tensor, made_up: tuple[Tensor, Tensor] | None
    ) -> None:
        first, second = BETAS
        step_size = self.lr / (1 - first**self.step)
        root = math.sqrt(1 - second**self.step)
        kept = (1 - self.lr * self.rule.weight_decay, torch.ones_like(self.lr))
        weights = (self.weight_LH, self.moments[0], self.moments[1], gradient_RH)
        biases = (self.bias_L, self.moments[2], self.moments[3], gradient_R)
        for (table, table_1, table_2, gradient), keep in zip((weights, biases), kept, strict=True):
            # a slice is a view and changes in place; positions make a copy that is written back
            values, moment_1, moment_2 = table[rows], table_1[rows], table_2[rows]
            if made_up is not None:
                missed, left = (t.unsqueeze(1) if table.dim() == 2 else t for t in made_up)
                moment_1.mul_(first**missed)
                moment_2.mul_(second**missed)
                if table.dim() == 2:
                    values.mul_(left)
            moment_1.lerp_(gradient, 1 - first)
            moment_2.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            values.mul_(keep)
            values.sub_(moment_1.div(moment_2.sqrt().div_(root).add_(EPSILON)).mul_(step_size))
            if not isinstance(rows, slice):
                table[rows], table_1[rows], table_2[rows] = values, moment_1, moment_2

    def settle(self) -> None:
        """Makes up the weight decay that lazy rows still owe, so that weights can be read as they stand."""
        if self.rule.touches_all or not len(self.seen_L):
            return
        left_L = torch.exp(self.log_decay[self.step] - self.log_decay[self.seen_L.long()]).float()
        missed_L = (self.step - self.seen_L).float()
        self.weight_LH.mul_(left_L.unsqueeze(1))
        for table, beta in zip(self.moments, (*BETAS, *BETAS), strict=True):
            table.mul_((beta**missed_L).unsqueeze(1) if table.dim() == 2 else beta**missed_L)
        self.seen_L.fill_(self.step)

    def state(self) -> dict[str, Tensor]:
        names = ("weight_1", "weight_2", "bias_1", "bias_2")
        return {
            "weight": self.weight_LH,
            "bias": self.bias_L,
            "step": torch.tensor(self.step),
            "seen": self.seen_L,
            "log_decay": self.log_decay[: self.step + 1],
            **dict(zip(names, self.moments, strict=True)),
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.weight_LH.copy_(state["weight"])
        self.bias_L.copy_(state["bias"])
        self.step = int(state["step"])
        self.seen_L.copy_(state["seen"])
        decay = state["log_decay"].to(self.log_decay)
        self.log_decay = torch.cat([decay, torch.zeros(max(1024, len(decay)), dtype=decay.dtype, device=decay.device)])
        for table, name in zip(self.moments, ("weight_1", "weight_2", "bias_1", "bias_2"), strict=True):
            table.copy_(state[name])
