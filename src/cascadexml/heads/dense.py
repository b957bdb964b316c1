"""A head that trains on all nodes of its level, chunk by chunk: neither logits nor gradients of B x L exist at a time.

Shapes: B documents, H hidden, K top-k, L nodes, R rows of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from cascadexml.batches import Positives
from cascadexml.heads import Grade, Top
from cascadexml.heads.graded import GradedHead
from cascadexml.heads.losses import log_scores
from cascadexml.heads.plain import PlainHead
from cascadexml.heads.rows import Rows
from cascadexml.shortlist import Children, Shortlist

CHUNK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""logits held at a time"""


@dataclass(frozen=True, eq=False)
class _Graded:
    """One small batch, from which `update` computes its logits again."""

    x_BH: Tensor
    documents: Tensor
    """of the positive pairs, sorted by node"""
    nodes: Tensor
    log_norm_B: Tensor
    num_positive_B: Tensor
    scale: Tensor


class DenseHead(GradedHead[_Graded]):
    """ALL in training; in prediction ALL, or a shortlist."""

    def __init__(self, rows: Rows, children: Children | None, loss: str) -> None:
        super().__init__(rows)
        self.loss = loss
        self._shortlisted = PlainHead(rows, children, loss)

    def top(self, x_BH: Tensor, shortlist: Shortlist | None, k: int, rank: str) -> Top:
        if shortlist is not None:
            return self._shortlisted.top(x_BH, shortlist, k, rank)
        return self._top_of_all(x_BH, k)

    def _top_of_all(self, x_BH: Tensor, k: int) -> Top:
        """ALL has no parents that were scored, so every rank is the node's own score."""
        values = torch.empty(len(x_BH), 0, device=x_BH.device)
        ids = torch.empty(len(x_BH), 0, dtype=torch.int64, device=x_BH.device)
        log_norm_B = torch.full((len(x_BH),), -torch.inf, device=x_BH.device)
        for rows in self._chunks(len(x_BH)):
            logits_BR = self._logits(x_BH, rows)
            log_norm_B = torch.logaddexp(log_norm_B, torch.logsumexp(logits_BR, 1))
            best, at = logits_BR.topk(min(k, logits_BR.shape[1]), dim=1)
            values, ids = torch.cat([values, best], 1), torch.cat([ids, at + rows.start], 1)
            values, at = values.topk(min(k, values.shape[1]), dim=1)
            ids = ids.gather(1, at)
        scores = log_scores(self.loss, values, log_norm_B)
        return Top(ids, scores, scores, ids)

    def grade(self, x_BH: Tensor, shortlist: Shortlist | None, positives: Positives, scale: Tensor, k: int) -> Grade:
        assert shortlist is None, "a dense head trains on all nodes of its level"
        nodes, by_node = positives.nodes.sort(stable=True)
        num_positive_B = torch.zeros(len(x_BH), device=x_BH.device)
        num_positive_B.index_add_(0, positives.documents, torch.ones(len(nodes), device=x_BH.device))
        log_norm_B = self._log_norm(x_BH) if self.loss == "softmax" else torch.empty(0, device=x_BH.device)
        graded = _Graded(x_BH, positives.documents[by_node], nodes, log_norm_B, num_positive_B, scale)
        loss, gradient_BH = self._loss_and_gradient(graded)
        self._graded.append(graded)
        best = self._top_of_all(x_BH, k) if k else None
        sizes_B = torch.full((len(x_BH),), len(self.rows), device=x_BH.device)
        return Grade(loss, best, gradient_BH, torch.tensor(len(nodes), device=x_BH.device), sizes_B)

    def _log_norm(self, x_BH: Tensor) -> Tensor:
        log_norm_B = torch.full((len(x_BH),), -torch.inf, device=x_BH.device)
        for rows in self._chunks(len(x_BH)):
            logits_BR = self._logits(x_BH, rows)
            log_norm_B = torch.logaddexp(log_norm_B, torch.logsumexp(logits_BR, 1))
        return log_norm_B

    def _loss_and_gradient(self, graded: _Graded) -> tuple[Tensor, Tensor]:
        loss = torch.zeros((), device=graded.x_BH.device)
        gradient_BH = torch.zeros_like(graded.x_BH)
        for rows, first, last in self._chunks_with_pairs(graded):
            logits_BR = self._logits(graded.x_BH, rows)
            loss += self._loss(graded, logits_BR, rows, first, last)
            gradient_BH.addmm_(self._difference(graded, logits_BR, rows, first, last), self.rows.weight_LH[rows])
        return loss, gradient_BH

    def update(self) -> None:
        """Each chunk's gradient is formed and used before the next one's."""
        walks = [self._chunks_with_pairs(graded) for graded in self._graded]
        for steps in zip(*walks, strict=True):
            rows = steps[0][0]
            gradient_RH = torch.zeros_like(self.rows.weight_LH[rows])
            gradient_R = torch.zeros_like(self.rows.bias_L[rows])
            for graded, (_, first, last) in zip(self._graded, steps, strict=True):
                difference_BR = self._difference(graded, self._logits(graded.x_BH, rows), rows, first, last)
                gradient_RH.addmm_(difference_BR.T, graded.x_BH)
                gradient_R += difference_BR.sum(0)
            self.rows.apply(rows, gradient_RH, gradient_R)
        self._graded = []

    def _chunks(self, num_documents: int) -> list[slice]:
        size = max(1, CHUNK_ELEMENTS.get(self.rows.weight_LH.device.type, 1 << 20) // max(1, num_documents))
        return [slice(start, min(start + size, len(self.rows))) for start in range(0, len(self.rows), size)]

    def _chunks_with_pairs(self, graded: _Graded) -> Iterator[tuple[slice, int, int]]:
        """Chunks of rows, alike for all small batches of an update, each with its range of positive pairs."""
        chunks = self._chunks(max(len(g.x_BH) for g in [*self._graded, graded]))
        bounds = torch.tensor([chunk.start for chunk in chunks] + [len(self.rows)], device=graded.nodes.device)
        cuts = torch.searchsorted(graded.nodes, bounds).tolist()
        yield from zip(chunks, cuts, cuts[1:], strict=False)

    def _logits(self, x_BH: Tensor, rows: slice) -> Tensor:
        return torch.addmm(self.rows.bias_L[rows], x_BH, self.rows.weight_LH[rows].T)

    def _loss(self, graded: _Graded, logits_BR: Tensor, rows: slice, first: int, last: int) -> Tensor:
        documents = graded.documents[first:last]
        of_positives = logits_BR[documents, graded.nodes[first:last] - rows.start]
        if self.loss == "bce":
            return softplus(logits_BR).sum() - of_positives.sum()
        return (graded.log_norm_B[documents] - of_positives).sum()

    def _difference(self, graded: _Graded, logits_BR: Tensor, rows: slice, first: int, last: int) -> Tensor:
        """d scaled loss / d logit, in the place of the logits."""
        if self.loss == "bce":
            difference_BR = logits_BR.sigmoid_()
        else:
            # number of positives x softmax, in one exponential; a document without positives gets exp(-inf)
            shift_B = graded.log_norm_B - graded.num_positive_B.log()
            difference_BR = logits_BR.sub_(shift_B.unsqueeze(1)).exp_()
        pairs = (graded.documents[first:last], graded.nodes[first:last] - rows.start)
        difference_BR.index_put_(pairs, difference_BR.new_full((), -1.0), accumulate=True)
        return difference_BR.mul_(graded.scale.unsqueeze(1) if graded.scale.dim() else graded.scale)
