"""The paper's training step as it is printed, a document at a time and in float64: what the heads are measured by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from cascadexml.cascade import Cascade


def algorithm_1(
    cascade: Cascade, vectors: dict[int, Tensor], batch: Any, divisors: list[float] | None
) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]], list[list[int]]]:
    """The paper's loop, a document at a time, in float64: gradients of vectors, of rows, and |S_t|.

    `divisors` a level, or None for the paper's own alpha_t / |S_t|, which is 1 / the document's smallest |S_t|.
    """
    config, tree = cascade.config, cascade.tree
    rows = [(r.weight_LH.double().requires_grad_(), r.bias_L.double().requires_grad_()) for r in cascade.rows]
    inputs = [vectors[level + 1].detach().double().requires_grad_() for level in range(len(rows))]
    num_documents = len(batch)
    loss, sizes = torch.zeros((), dtype=torch.float64), []
    for document in range(num_documents):
        shortlist = list(range(tree.num_nodes[0]))
        terms, of_document = [], []
        for level, (weight_LH, bias_L) in enumerate(rows):
            if level == len(rows) - 1 and config.final == "all":
                shortlist = list(range(tree.num_labels))
            positives = batch.positives[level]
            true = set(positives.nodes[positives.documents == document].tolist())
            shortlist = sorted({*shortlist, *true})
            logits_S = inputs[level][document] @ weight_LH[shortlist].T + bias_L[shortlist]
            target_S = torch.tensor([float(node in true) for node in shortlist], dtype=torch.float64)
            if config.loss == "bce":
                terms.append((softplus(logits_S) - target_S * logits_S).sum())
            else:
                terms.append(-(target_S * torch.log_softmax(logits_S, 0)).sum())
            of_document.append(len(shortlist))
            if level < len(rows) - 1:
                kept = logits_S.topk(min(config.top_k[level], len(shortlist))).indices.tolist()
                starts = tree.starts[level]
                shortlist = [n for at in kept for n in range(starts[shortlist[at]], starts[shortlist[at] + 1])]
        over = divisors or [min(of_document)] * len(rows)
        loss = loss + sum(term / size for term, size in zip(terms, over, strict=True)) / num_documents
        sizes.append(of_document)
    loss.backward()
    gradients = [x.grad if x.grad is not None else torch.zeros_like(x) for x in inputs]
    tables = [tuple(t.grad if t.grad is not None else torch.zeros_like(t) for t in pair) for pair in rows]
    return gradients, tables, sizes  # type: ignore[return-value]
