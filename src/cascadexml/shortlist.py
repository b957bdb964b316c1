"""A level's best clusters in, the next level's candidates out: ranges of children, never a padded cluster table.

Shapes: B documents, K clusters kept, S candidate slots, P positive pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cascadexml.batches import Positives


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The clusters of each document whose children are all in; with the positive pairs beside it, the paper's union."""

    clusters_BK: Tensor
    """int64, -1 in the slots of a document that scored fewer than K nodes"""
    own_BK: Tensor
    """log-score of each cluster by itself"""
    path_BK: Tensor
    """log-score of each cluster's whole path"""


ALL = None
"""the shortlist that holds every node of a level"""


@dataclass(frozen=True, eq=False)
class Children:
    """The nodes of a level as ranges, one for each cluster of the level above."""

    starts: Tensor
    """int64: cluster c owns nodes starts[c] : starts[c + 1]"""
    parents: Tensor
    """int64: node -> its cluster"""
    most: int
    """nodes of the largest cluster; the others have as many or one fewer"""

    def to(self, device: torch.device) -> Children:
        return Children(self.starts.to(device), self.parents.to(device), self.most)


@dataclass(frozen=True, eq=False)
class Candidates:
    """A shortlist spelled out: max(children) slots a cluster, spare slots masked."""

    nodes_BS: Tensor
    """int64, 0 in slots that hold nothing"""
    valid_BS: Tensor


def candidates(shortlist: Shortlist, children: Children) -> Candidates:
    clusters_BK = shortlist.clusters_BK
    known_BK = clusters_BK >= 0
    first_BK = children.starts[clusters_BK.clamp(min=0)]
    size_BK = children.starts[clusters_BK.clamp(min=0) + 1] - first_BK
    slot = torch.arange(children.most, device=clusters_BK.device)
    valid_BKM = (slot < size_BK.unsqueeze(2)) & known_BK.unsqueeze(2)
    nodes_BKM = (first_BK.unsqueeze(2) + slot).masked_fill(~valid_BKM, 0)
    return Candidates(nodes_BKM.flatten(1), valid_BKM.flatten(1))


def slots_of(positives: Positives, shortlist: Shortlist, children: Children) -> tuple[Tensor, Tensor]:
    """For each positive pair: the candidate slot that holds it (0 where none does), and whether one does."""
    parents_P = children.parents[positives.nodes]
    match_PK = shortlist.clusters_BK[positives.documents] == parents_P.unsqueeze(1)
    covered_P = match_PK.any(dim=1)
    slots_P = match_PK.int().argmax(dim=1) * children.most + positives.nodes - children.starts[parents_P]
    return slots_P.masked_fill(~covered_P, 0), covered_P
