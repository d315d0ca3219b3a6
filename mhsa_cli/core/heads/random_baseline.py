"""What chance gives: the lifts of randomly initialised heads of a model's shape on rows of its task."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from mhsa_cli.core.heads.hooks import head_weights
from mhsa_cli.core.heads.probe import FEWEST, MAX_WEIGHTS, build_probe
from mhsa_cli.core.heads.scores import heads_together, lifts
from mhsa_cli.core.model.transformer import TransformerLM, draw_weights
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import stream_generator

HEADS, ROWS = 200, 16  # random heads, or a few more to make whole models; rows that they see
PERCENTILE = 0.99
MAX_ALL = 2**24  # weights of all random heads together, about a second's work
SEED = 0  # one null for all seeds: it depends on the shape and the task alone


@torch.no_grad()
def null_lifts(model: TransformerLM, task: Task) -> dict[str, Tensor]:
    """Measure the lift on every target of at least HEADS heads of untrained models of this model's shape.

    Returns by target's name (N,), float64. The heads of all layers count alike. The same heads and rows for every seed,
    drawn on the CPU whatever the model is on. Of long rows fewer are looked at: their mean scatters more, so the limit
    is the higher one. Empty where the rows are too long to measure, or a custom block does not show its weights.
    """
    if model.custom is not None and not model.custom.found.shows:
        return {}
    T = task.seq_len
    drawn = copy.deepcopy(model).cpu()
    probe = build_probe(drawn, task, SEED, min(ROWS, max(FEWEST, MAX_ALL // (HEADS * T * T))))
    if probe is None:
        return {}
    n_heads, B = len(model.heads), len(probe.ids)
    models = math.ceil(HEADS / n_heads)
    at_once = max(1, min(models, MAX_WEIGHTS // (B * n_heads * T * T)))
    stacked = copy.deepcopy(drawn)
    parts: list[dict[str, Tensor]] = []
    for first in range(0, models, at_once):
        draws = []
        for index in range(first, min(first + at_once, models)):
            draw_weights(drawn, stream_generator(SEED, "null", index))
            draws.append([p.detach().clone() for p in drawn.parameters()])
        for parameter, values in zip(stacked.parameters(), zip(*draws, strict=True), strict=True):
            parameter.data = torch.stack(values)
        weights = heads_together(head_weights(stacked, probe.ids.expand(len(draws), B, T)))
        parts.append({name: found.lift for name, found in lifts(weights, probe).items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def null_limits(model: TransformerLM, task: Task) -> dict[str, float]:
    """Give by target's name the lift that a labelled head must pass: the 99th percentile of random heads."""
    return {name: percentile(values) for name, values in null_lifts(model, task).items()}


def percentile(values: Tensor) -> float:
    """Give the 99th percentile, in float64: in float32 its rank among the values is a little off."""
    return float(torch.quantile(values.double(), PERCENTILE))
