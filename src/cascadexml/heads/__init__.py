"""The door: what the cascade asks of a head, whichever implementation stands behind it.

A head is one level's rows (weight and bias), in tree order. It owns their gradients and their update.
Shapes: B documents, H hidden, K top-k, L nodes of the level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from cascadexml.batches import Positives
from cascadexml.shortlist import Shortlist


@dataclass(frozen=True, eq=False)
class Top:
    """The best nodes of each document, best first."""

    ids_BK: Tensor
    """int64, -1 where a document scored fewer"""
    scores_BK: Tensor
    """log-scores by the rank asked for, -inf where there is no id"""
    own_BK: Tensor
    """log-scores of the nodes by themselves"""
    places_BK: Tensor
    """candidate slot that each came from"""


@dataclass(frozen=True, eq=False)
class Grade:
    """What a level gives back in training."""

    loss: Tensor
    """summed over documents and nodes, unscaled"""
    top: Top | None
    """by the level's own logits; None where k was 0"""
    gradient_BH: Tensor
    """of the scaled loss, fp32"""
    num_covered: Tensor
    """positive pairs that the shortlist held by itself"""
    sizes_B: Tensor
    """nodes scored for each document: |S_t|"""


class Head(ABC):
    """One level's rows, their scores, gradients and update."""

    @abstractmethod
    def top(self, x_BH: Tensor, shortlist: Shortlist | None, k: int, rank: str) -> Top:
        """The k best by `rank`: own log-score (`label`), plus the parent's (`parent`), or plus the path's (`path`)."""

    @abstractmethod
    def begin(self, lr: Tensor, step: int) -> None:
        """Before the first small batch of a large one; steps count from 1."""

    @abstractmethod
    def grade(self, x_BH: Tensor, shortlist: Shortlist | None, positives: Positives, scale: Tensor, k: int) -> Grade:
        """Loss and gradients of one small batch; changes no row. `scale` is one number, or one a document."""

    @abstractmethod
    def update(self) -> None:
        """Once a large batch: all rows move by what was graded since `begin`."""

    @abstractmethod
    def forget_last(self) -> None:
        """Takes back the last `grade`, as literal mode does after its first pass."""

    @abstractmethod
    def discard(self) -> None:
        """Forgets what was graded."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Rows, moments, step counts and decay table."""

    @abstractmethod
    def load_state(self, state: dict[str, Tensor]) -> None: ...
