"""What chance gives: the lifts of randomly initialised heads of the same shape on the same rows."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from mhsa_cli.core.heads.probe import FEWEST, MAX_WEIGHTS, Probe, first_rows
from mhsa_cli.core.heads.scores import heads_together, lifts
from mhsa_cli.core.heads.walk import head_weights
from mhsa_cli.core.model import TransformerLM, draw_weights
from mhsa_cli.core.tasks.base import stream_generator

HEADS = 200  # random heads, or a few more to make whole models
PERCENTILE = 0.99
MAX_ALL = 2**24  # weights of all random heads together, about a second's work


@torch.no_grad()
def null_lifts(model: TransformerLM, probe: Probe, seed: int) -> dict[str, Tensor]:
    """Measure the lift on every target of at least HEADS heads of untrained models of this model's shape.

    Returns by target's name (N,), float64. The heads of all layers count alike. Of long rows only the first few are
    looked at: their mean scatters more, so the limit is the higher one.
    """
    T = probe.ids.size(1)
    probe = first_rows(probe, max(FEWEST, MAX_ALL // (HEADS * T * T)))
    n_heads, B = len(model.heads), len(probe.ids)
    models = math.ceil(HEADS / n_heads)
    at_once = max(1, min(models, MAX_WEIGHTS // (B * n_heads * T * T)))
    drawn, stacked = copy.deepcopy(model), copy.deepcopy(model)
    parts: list[dict[str, Tensor]] = []
    for first in range(0, models, at_once):
        draws = []
        for index in range(first, min(first + at_once, models)):
            draw_weights(drawn, stream_generator(seed, "null", index))
            draws.append([p.detach().clone() for p in drawn.parameters()])
        for parameter, values in zip(stacked.parameters(), zip(*draws, strict=True), strict=True):
            parameter.data = torch.stack(values)
        ids = probe.ids.to(model.pos.device).expand(len(draws), B, T)
        weights = heads_together(head_weights(stacked, ids))
        parts.append({name: found.lift for name, found in lifts(weights, probe).items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def percentile(values: Tensor) -> float:
    """Give the 99th percentile that a labelled head must pass."""
    return float(torch.quantile(values.cpu(), PERCENTILE))
