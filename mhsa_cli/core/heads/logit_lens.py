"""Logit lens: the stream after every layer, read as if it were the last. Source: nostalgebraist 2020."""

from __future__ import annotations

import torch

from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import Batch
from mhsa_cli.core.tasks.base import sums
from mhsa_cli.records.inspection import LensStep


@torch.no_grad()
def logit_lens(model: TransformerLM, batch: Batch) -> list[LensStep]:
    """Measure loss and accuracy of the embedding and of every block's output through final norm and output map.

    The last step is the model's own loss. Custom attention needs no weights for this.
    """
    steps = []
    with eval_mode(model):
        pos = model.pos[: batch.inputs.size(1)]
        targets = batch.targets.to(pos.device).unsqueeze(0)
        x = model.embed(batch.inputs.to(pos.device), pos)
        for layer, block in enumerate([None, *model.blocks]):
            if block is not None:
                x, _ = block(x, pos)
            loss, correct, count = sums(model.lm_head(model.final_norm(x)).unsqueeze(0), targets)
            steps.append(LensStep(layer - 1 if layer else None, float(loss / count), float(correct / count)))
    return steps
