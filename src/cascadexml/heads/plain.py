"""The specification of a head: plain torch, a shortlist or all nodes at once, on any device.

Shapes: B documents, H hidden, S candidate slots, E slots for positives outside the shortlist, P positive pairs,
K top-k, L nodes, R rows of one chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cascadexml.batches import Positives
from cascadexml.heads import Grade, Top
from cascadexml.heads.graded import GradedHead
from cascadexml.heads.losses import bce_difference, bce_loss, log_scores, softmax_difference, softmax_loss
from cascadexml.heads.rows import Rows
from cascadexml.shortlist import Candidates, Children, Shortlist, candidates, slots_of

GATHER_ELEMENTS = 1 << 25
"""numbers of gathered rows held at a time"""
DENSE_FACTOR = 16
"""a level of up to this many times the candidates is scored whole: a matrix product outruns gathering rows"""
UPDATE_ROWS = 1 << 14
"""rows whose gradient is formed at a time"""


@dataclass(frozen=True, eq=False)
class _Graded:
    """What `update` needs of one small batch: the non-zero differences as (document, node) pairs."""

    x_BH: Tensor
    documents: Tensor
    nodes: Tensor
    differences: Tensor


class PlainHead(GradedHead[_Graded]):
    """Scores what the shortlist and the positives name, and nothing else."""

    def __init__(self, rows: Rows, children: Children | None, loss: str) -> None:
        super().__init__(rows)
        self.children = children
        self.loss = loss

    def top(self, x_BH: Tensor, shortlist: Shortlist | None, k: int, rank: str) -> Top:
        spelled = self._spell_out(shortlist, len(x_BH))
        logits_BS = self._logits(x_BH, spelled).masked_fill(~spelled.valid_BS, -torch.inf)
        own_BS = log_scores(self.loss, logits_BS, torch.logsumexp(logits_BS, 1))
        ranked_BS = own_BS
        if rank != "label" and shortlist is not None:
            assert self.children is not None
            above_BK = shortlist.own_BK if rank == "parent" else shortlist.path_BK
            ranked_BS = own_BS + above_BK.repeat_interleave(self.children.most, dim=1)
        ranked_BS = ranked_BS.masked_fill(~spelled.valid_BS, -torch.inf)
        return _best(spelled.nodes_BS, ranked_BS, own_BS, k)

    def grade(self, x_BH: Tensor, shortlist: Shortlist | None, positives: Positives, scale: Tensor, k: int) -> Grade:
        spelled = self._spell_out(shortlist, len(x_BH))
        if shortlist is None:
            slots_P, covered_P = positives.nodes, torch.ones_like(positives.nodes, dtype=torch.bool)
        else:
            assert self.children is not None
            slots_P, covered_P = slots_of(positives, shortlist, self.children)
        whole, slots_P = self._with_positives(spelled, positives, slots_P, covered_P)
        extra_BE = self._logits_of_pairs(x_BH, positives, slots_P - spelled.nodes_BS.shape[1], covered_P)
        logits = torch.cat([self._logits(x_BH, spelled), extra_BE], dim=1).masked_fill(~whole.valid_BS, -torch.inf)
        targets = torch.zeros_like(logits)
        targets[positives.documents, slots_P] = 1
        loss, differences = self._loss_and_difference(logits, targets, whole.valid_BS)
        differences = differences * (scale.unsqueeze(1) if scale.dim() else scale)
        self._keep(x_BH, whole, differences)
        own = log_scores(self.loss, logits, torch.logsumexp(logits, 1)) if k else logits
        best = _best(whole.nodes_BS, own, own, k) if k else None
        gradient_BH = self._weighted_rows(whole, differences)
        return Grade(loss, best, gradient_BH, covered_P.sum(), whole.valid_BS.sum(1))

    def update(self) -> None:
        offsets = [0]
        for graded in self._graded:
            offsets.append(offsets[-1] + len(graded.x_BH))
        x_BH = torch.cat([graded.x_BH for graded in self._graded])
        documents = torch.cat(
            [graded.documents + offset for graded, offset in zip(self._graded, offsets, strict=False)]
        )
        nodes, by_node = torch.cat([graded.nodes for graded in self._graded]).sort(stable=True)
        documents = documents[by_node]
        differences = torch.cat([graded.differences for graded in self._graded])[by_node]
        if self.rows.rule.touches_all:
            touched, at = torch.arange(len(self.rows), device=nodes.device), nodes
        else:
            touched, at = torch.unique_consecutive(nodes, return_inverse=True)
        for start in range(0, len(touched), UPDATE_ROWS):
            chunk = touched[start : start + UPDATE_ROWS]
            first, last = torch.searchsorted(at, torch.tensor([start, start + len(chunk)], device=at.device)).tolist()
            by_row_RB = torch.zeros(len(chunk), len(x_BH), device=x_BH.device)
            by_row_RB[at[first:last] - start, documents[first:last]] = differences[first:last]
            rows = slice(start, start + len(chunk)) if self.rows.rule.touches_all else chunk
            self.rows.apply(rows, by_row_RB @ x_BH, by_row_RB.sum(1))
        self._graded = []

    def _spell_out(self, shortlist: Shortlist | None, num_documents: int) -> Candidates:
        if shortlist is not None:
            assert self.children is not None
            return candidates(shortlist, self.children)
        nodes = torch.arange(len(self.rows), device=self.rows.weight_LH.device).expand(num_documents, -1)
        return Candidates(nodes, torch.ones_like(nodes, dtype=torch.bool))

    def _with_positives(
        self, spelled: Candidates, positives: Positives, slots_P: Tensor, covered_P: Tensor
    ) -> tuple[Candidates, Tensor]:
        """The union: slots behind the shortlist's for the positives that it lacks, and where each positive stands."""
        num_documents, num_slots = spelled.nodes_BS.shape
        per_document = torch.zeros(num_documents, dtype=torch.int64, device=slots_P.device)
        per_document.index_add_(0, positives.documents, torch.ones_like(positives.documents))
        first = per_document.cumsum(0) - per_document
        extra_P = torch.arange(len(slots_P), device=slots_P.device) - first[positives.documents]
        slots_P = torch.where(covered_P, slots_P, num_slots + extra_P)
        nodes_BE = torch.zeros(num_documents, positives.most, dtype=torch.int64, device=slots_P.device)
        valid_BE = torch.zeros_like(nodes_BE, dtype=torch.bool)
        nodes_BE[positives.documents, extra_P] = positives.nodes.masked_fill(covered_P, 0)
        valid_BE[positives.documents, extra_P] = ~covered_P
        return Candidates(
            torch.cat([spelled.nodes_BS, nodes_BE], 1), torch.cat([spelled.valid_BS, valid_BE], 1)
        ), slots_P

    def _logits(self, x_BH: Tensor, spelled: Candidates) -> Tensor:
        weight_LH, bias_L = self.rows.weight_LH, self.rows.bias_L
        if len(self.rows) <= DENSE_FACTOR * spelled.nodes_BS.shape[1]:
            return torch.addmm(bias_L, x_BH, weight_LH.T).gather(1, spelled.nodes_BS)
        pieces = []
        for part in self._document_slices(spelled.nodes_BS.shape):
            nodes_BS = spelled.nodes_BS[part]
            pieces.append(torch.bmm(weight_LH[nodes_BS], x_BH[part].unsqueeze(2)).squeeze(2) + bias_L[nodes_BS])
        return torch.cat(pieces)

    def _logits_of_pairs(self, x_BH: Tensor, positives: Positives, slots_P: Tensor, covered_P: Tensor) -> Tensor:
        """B x E: logits of the positives that the shortlist lacks, a row each and no padding but of the numbers."""
        logits_P = (self.rows.weight_LH[positives.nodes] * x_BH[positives.documents]).sum(1)
        logits_P = (logits_P + self.rows.bias_L[positives.nodes]).masked_fill(covered_P, 0)
        logits_BE = torch.zeros(len(x_BH), positives.most, device=x_BH.device, dtype=x_BH.dtype)
        # covered pairs add nothing, wherever their slot number points
        places = (positives.documents, slots_P.masked_fill(covered_P, 0))
        return logits_BE.index_put_(places, logits_P, accumulate=True)

    def _loss_and_difference(self, logits: Tensor, targets: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        finite = logits.masked_fill(~valid, 0)
        if self.loss == "bce":
            return bce_loss(finite, targets, valid), bce_difference(finite, targets, valid)
        log_norm_B, num_positive_B = torch.logsumexp(logits, 1), targets.sum(1)
        return (
            softmax_loss(finite, targets, valid, log_norm_B),
            softmax_difference(finite, targets, valid, log_norm_B, num_positive_B),
        )

    def _keep(self, x_BH: Tensor, whole: Candidates, differences: Tensor) -> None:
        documents = torch.arange(len(x_BH), device=x_BH.device).unsqueeze(1).expand_as(differences)
        valid = whole.valid_BS
        self._graded.append(_Graded(x_BH, documents[valid], whole.nodes_BS[valid], differences[valid]))

    def _weighted_rows(self, whole: Candidates, differences: Tensor) -> Tensor:
        """Sum over scored nodes of difference x row, for each document; masked slots have difference 0."""
        weight_LH = self.rows.weight_LH
        if len(self.rows) <= DENSE_FACTOR * differences.shape[1]:
            dense_BL = torch.zeros(len(differences), len(self.rows), device=differences.device)
            return dense_BL.scatter_add_(1, whole.nodes_BS, differences) @ weight_LH
        pieces = []
        for part in self._document_slices(differences.shape):
            pieces.append(torch.bmm(differences[part].unsqueeze(1), weight_LH[whole.nodes_BS[part]]).squeeze(1))
        return torch.cat(pieces)

    def _document_slices(self, shape: torch.Size) -> list[slice]:
        size = max(1, GATHER_ELEMENTS // max(1, shape[1] * self.rows.weight_LH.shape[1]))
        return [slice(start, start + size) for start in range(0, shape[0], size)]


def _best(nodes_BS: Tensor, ranked_BS: Tensor, own_BS: Tensor, k: int) -> Top:
    scores_BK, at_BK = ranked_BS.topk(min(k, ranked_BS.shape[1]), dim=1)
    empty_BK = scores_BK == -torch.inf
    return Top(nodes_BS.gather(1, at_BK).masked_fill(empty_BK, -1), scores_BK, own_BS.gather(1, at_BK), at_BK)
