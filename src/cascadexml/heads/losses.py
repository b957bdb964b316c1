"""The two losses as functions of logits, with gradients written out: no autograd graph runs through a level's rows.

Shapes: B documents, S nodes scored (masked slots hold -inf).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus


def bce_loss(logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """Sum over scored nodes."""
    return ((softplus(logits) - targets * logits).masked_fill(~valid, 0)).sum()


def bce_difference(logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """d loss / d logit."""
    return (torch.sigmoid(logits) - targets).masked_fill(~valid, 0)


def softmax_loss(logits: Tensor, targets: Tensor, valid: Tensor, log_norm_B: Tensor) -> Tensor:
    """Sum over positives of -log softmax."""
    return (targets * (log_norm_B.unsqueeze(1) - logits)).masked_fill(~valid, 0).sum()


def softmax_difference(
    logits: Tensor, targets: Tensor, valid: Tensor, log_norm_B: Tensor, num_positive_B: Tensor
) -> Tensor:
    """number of positives x softmax - target."""
    shares = torch.exp(logits - log_norm_B.unsqueeze(1)) * num_positive_B.unsqueeze(1)
    return (shares - targets).masked_fill(~valid, 0)


def log_scores(loss: str, logits: Tensor, log_norm_B: Tensor | None) -> Tensor:
    """Log-probabilities of nodes: by themselves (BCE), or among the nodes scored (softmax)."""
    if loss == "bce":
        return logsigmoid(logits)
    assert log_norm_B is not None
    return logits - log_norm_B.unsqueeze(1)
