"""The null distribution of lifts: untrained heads of a model's shape on rows of its task."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, MIN_ROWS, build_probe
from mhsa_cli.core.heads.scores import concat_heads, lifts
from mhsa_cli.core.model.transformer import TransformerLM, draw_weights
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import stream_generator

HEADS, ROWS = 200, 16  # untrained heads, rounded up to whole models, and their rows
PERCENTILE = 0.99
MAX_ALL = 2**24  # attention weights of all untrained heads together, about a second of work
SEED = 0  # the null depends on shape and task, not on the run's seed


@torch.no_grad()
def null_lifts(model: TransformerLM, task: Task) -> dict[str, Tensor]:
    """Measure the lift on every target of at least HEADS heads of untrained models of this model's shape.

    Returns (N,) float64 by target name, heads of all layers alike. Heads and rows depend on shape and task alone and
    are drawn on the CPU. Long rows allow fewer of them, which raises the limit. Empty where rows are too long to
    measure, or a custom block does not return its weights.
    """
    if model.custom is not None and not model.custom.findings.has_weights:
        return {}
    T = task.seq_len
    drawn = copy.deepcopy(model).cpu()
    probe = build_probe(drawn, task, SEED, min(ROWS, max(MIN_ROWS, MAX_ALL // (HEADS * T * T))))
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
        weights = concat_heads(head_weights(stacked, probe.ids.expand(len(draws), B, T)))
        parts.append({name: target.lift for name, target in lifts(weights, probe).items()})
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def null_limits(model: TransformerLM, task: Task) -> dict[str, float]:
    """Compute by target name the lift that a labelled head must exceed: the 99th percentile of untrained heads."""
    return {name: percentile(values) for name, values in null_lifts(model, task).items()}


def percentile(values: Tensor) -> float:
    """Compute the 99th percentile in float64; float32 would round the rank."""
    return float(torch.quantile(values.double(), PERCENTILE))
