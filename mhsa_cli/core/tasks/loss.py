"""The loss and the accuracy of a task: cross-entropy over its scored positions."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.core.tasks.base import IGNORE


def sums(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Add up each model's cross-entropy (nats), right answers and scored positions; unscored ones count for nothing.

    Shapes: logits (M, B, T, V), targets (M, B, T), every result (M,). An answer is right if no other id is more likely
    (argmax says the same but for exact ties, at ten times the cost).
    """
    scored = targets != IGNORE
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    answer = log_p.gather(-1, targets.long().clamp(min=0).unsqueeze(-1)).squeeze(-1)  # (M, B, T)
    with torch.no_grad():
        right = ((answer == log_p.amax(-1)) & scored).flatten(1).sum(1)
    return -(answer * scored).flatten(1).sum(1), right, scored.flatten(1).sum(1)
