"""A Model before its first step and its training documents in; rows that point at their documents out.

A row starts as length x unit(sum over its documents of (x - mean)) / mean |x - mean|, and its bias falls by row x mean:
so a logit starts near length x cosine, shifted by the level's prior. Where labels have few documents this start decides
more than anything else; where they have many it can cost (docs/log.md).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cascadexml.batches import BatchMaker, ahead
from cascadexml.model import Model
from cascadexml.predict import BATCH_TOKENS, batches_of_tokens
from cascadexml.prepared import TokenisedPart

SAMPLE = 1 << 16
"""documents whose distance from the mean is measured"""


@torch.no_grad()
def start_from_centroids(model: Model, part: TokenisedPart, rows: np.ndarray, levels: list[int]) -> None:
    """Replaces the rows of `levels`, level by level in one pass over the documents `rows`."""
    cascade = model.cascade
    model.train(False)
    maker = BatchMaker(part.tokens, model.config.model.max_tokens, part.known.labels, cascade.tree)
    sums = {level: torch.zeros_like(cascade.rows[level].weight_LH) for level in levels}
    counts = {level: torch.zeros_like(cascade.rows[level].bias_L) for level in levels}
    totals = {level: torch.zeros_like(cascade.rows[level].weight_LH[0]) for level in levels}
    kept: dict[int, list[Tensor]] = {level: [] for level in levels}
    num_kept = 0
    updates = [rows[batch] for batch in batches_of_tokens(maker.lengths[rows], BATCH_TOKENS[model.device.type])]
    # in any order but by length, so that the sample is one of all lengths
    updates = [updates[at] for at in np.random.default_rng(0).permutation(len(updates))]
    for (batch,) in ahead(maker, updates, 0, model.device):
        inputs = cascade.level_vectors(model.encode(batch))
        for level in levels:
            pairs = batch.positives[level]
            sums[level].index_add_(0, pairs.nodes, inputs[level][pairs.documents])
            counts[level].index_add_(0, pairs.nodes, torch.ones(len(pairs.nodes), device=model.device))
            totals[level] += inputs[level].sum(0)
            if num_kept < SAMPLE:
                kept[level].append(inputs[level])
        num_kept += len(batch)
    for level in levels:
        _point(model, level, sums[level], counts[level], totals[level] / len(rows), torch.cat(kept[level]))


def _point(model: Model, level: int, sums_LH: Tensor, counts_L: Tensor, mean_H: Tensor, x_NH: Tensor) -> None:
    spread = (x_NH - mean_H).norm(dim=1).mean().clamp(min=1e-12)
    direction_LH = torch.nn.functional.normalize(sums_LH - counts_L.unsqueeze(1) * mean_H, dim=1)
    rows = model.cascade.rows[level]
    rows.weight_LH.copy_(direction_LH * (model.config.model.start_length / spread))
    rows.bias_L.sub_(rows.weight_LH @ mean_H)
