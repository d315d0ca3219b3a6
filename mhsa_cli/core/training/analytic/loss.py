"""The loss of a stack of models, and its gradient by the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.core.tasks.base import IGNORE
from mhsa_cli.core.training.analytic.parts import Take


class CrossEntropy:
    """Cross-entropy and accuracy of logits (M, N, V) from one log-softmax; d loss / d logits goes into `d_logits`."""

    def __init__(self, d_logits: Tensor, take: Take) -> None:
        M, N, _ = d_logits.shape
        dtype = d_logits.dtype
        self.d_logits = d_logits
        self.index, self.answer = take("index", (M, N, 1), torch.int64), take("answer", (M, N, 1), dtype)
        self.top, self.scored, self.part = (take(name, (M, N), dtype) for name in ("top", "scored", "part"))
        self.scored_column, self.answer_row = self.scored.unsqueeze(-1), self.answer.squeeze(-1)
        self.minus_one = d_logits.new_full((1, 1, 1), -1.0).expand(M, N, 1)

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute each model's loss (nats) and accuracy, (M,), over the scored targets (M, B, T)."""
        scored, part, answer = self.scored, self.part, self.answer_row
        targets = targets.reshape(scored.shape).long()
        torch.ne(targets, IGNORE, out=scored)
        count = scored.sum(1)
        torch.clamp(targets.unsqueeze(-1), min=0, out=self.index)
        log_p = torch.log_softmax(logits, -1, out=self.d_logits)
        torch.gather(log_p, -1, self.index, out=self.answer)
        torch.amax(log_p, -1, out=self.top)
        loss = -torch.mul(answer, scored, out=part).sum(1) / count
        accuracy = torch.eq(answer, self.top, out=part).mul_(scored).sum(1) / count
        # d loss / d logits = (p - one-hot) / count on scored positions, 0 elsewhere.
        scored /= count.unsqueeze(1)
        log_p.exp_().scatter_add_(-1, self.index, self.minus_one).mul_(self.scored_column)
        return loss, accuracy
