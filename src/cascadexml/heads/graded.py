"""What heads that keep what `grade` saw until `update` have in common: their rows, and taking it back."""

from __future__ import annotations

from typing import Generic, TypeVar

from torch import Tensor

from cascadexml.heads import Head
from cascadexml.heads.rows import Rows

Kept = TypeVar("Kept")
"""what one `grade` leaves behind"""


class GradedHead(Head, Generic[Kept]):
    """Abstract: scores, gradients and update are the implementation's."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._graded: list[Kept] = []

    def begin(self, lr: Tensor, step: int) -> None:
        self.rows.begin(lr, step)
        self._graded = []

    def forget_last(self) -> None:
        self._graded.pop()

    def discard(self) -> None:
        self._graded = []
        self.rows.skip()

    def state(self) -> dict[str, Tensor]:
        return self.rows.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.rows.load_state(state)
