"""Two null distributions of lifts: heads of untrained models of this shape, and random heads in the same model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.families import Lift, offsets_seen
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, MIN_ROWS, Probe, build_probe, probe_of
from mhsa_cli.core.heads.scores import concat_heads, lifts
from mhsa_cli.core.heads.stream import run_stream
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, share_heads
from mhsa_cli.core.model.transformer import TransformerLM, draw_weights, eval_mode
from mhsa_cli.core.tasks import Batch, Task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records.heads import HeadScore

HEADS, ROWS = 200, 16  # untrained heads, rounded up to whole models, and their rows
PERCENTILE = 0.99
RANDOM_HEADS, MAX_KEYS = 64, 256  # random heads in the same model, rounded up to whole models, and their longest row
MAX_ALL = 2**24  # attention weights of all heads of one kind together, about a second of work
SEED = 0  # neither null depends on the run's seed


class Limits(NamedTuple):
    """The lifts that a labelled head must exceed, by target, and for offsets by distance.

    Where layers see different keys, `layers` holds those of each.
    """

    targets: Mapping[str, float]
    offsets: Mapping[int, float]
    layers: tuple[Limits, ...] = ()

    def at(self, layer: int) -> Limits:
        """Return the limits of a layer."""
        return self.layers[layer] if self.layers else self

    def of(self, target: str, distance: int | None) -> float | None:
        """Return the limit of a target; None where it was not measured."""
        return self.targets.get(target) if target != "offset" or distance is None else self.offsets.get(distance)


@torch.no_grad()
def null_lifts(model: TransformerLM, task: Task) -> dict[str, Tensor]:
    """Measure the lift on every target of at least HEADS heads of untrained models of this model's shape.

    Returns float64 by target, (N,), heads of all layers alike; for offsets (N, D), a head's largest lift up to each
    distance from 2 on. Heads and rows depend on shape and task alone and are drawn on the CPU. Long rows allow fewer of
    them, which raises the limit. Empty where rows are too long to measure, or a custom block does not return its
    weights.
    """
    found = untrained_weights(model, task)
    if found is None:
        return {}
    probe, drawn = found
    parts = [reached(lifts(concat_heads(weights), probe)) for weights in drawn]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def untrained_weights(model: TransformerLM, task: Task) -> tuple[Probe, Iterator[list[Tensor]]] | None:
    """Return rows, and the weights on them of many untrained models at once, by layer (M, B, H, T, T).

    They are those that `null_lifts` scores; None where it is empty.
    """
    if model.custom is not None and not model.custom.findings.has_weights:
        return None
    T = task.seq_len
    stacked = copy.deepcopy(model).cpu()
    probe = build_probe(stacked, task, SEED, min(ROWS, max(MIN_ROWS, MAX_ALL // (HEADS * T * T))))
    return None if probe is None else (probe, _drawn_weights(model, stacked, probe))


def _drawn_weights(model: TransformerLM, stacked: TransformerLM, probe: Probe) -> Iterator[list[Tensor]]:
    n_heads, (B, T) = len(model.heads), probe.ids.shape
    models = math.ceil(HEADS / n_heads)
    at_once = max(1, min(models, MAX_WEIGHTS // (B * n_heads * T * T)))
    drawings = untrained(model)
    for _ in range(0, models, at_once):
        draws = [[p.detach().clone() for p in one.parameters()] for one in islice(drawings, at_once)]
        for parameter, values in zip(stacked.parameters(), zip(*draws, strict=True), strict=True):
            parameter.data = torch.stack(values)
        yield head_weights(stacked, probe.ids.expand(len(draws), B, T))


def untrained(model: TransformerLM) -> Iterator[TransformerLM]:
    """Yield models of this shape with at least HEADS heads in all, drawn from SEED; they share their storage."""
    drawn = copy.deepcopy(model).cpu()
    for index in range(math.ceil(HEADS / len(model.heads))):
        draw_weights(drawn, stream_generator(SEED, "null", index))
        yield drawn


def reached(found: Mapping[str, Lift]) -> dict[str, Tensor]:
    """Return the lifts by target (N,), and of offsets the largest up to each distance (N, D).

    A near offset is so not judged by far ones, which few queries see.
    """
    values = {name: lift.lift for name, lift in found.items()}
    if "offset" in found and found["offset"].by_distance:
        values["offset"] = torch.stack([*found["offset"].by_distance.values()], 1).cummax(1).values
    return values


def null_limits(model: TransformerLM, task: Task) -> Limits:
    """Compute the 99th percentile of untrained heads."""
    if model.source:
        return _null_limits_of_parts(model, task)
    visible = model.mixers[0].visible[: task.seq_len, : task.seq_len].cpu()
    return limits_of(null_lifts(model, task), percentile, offsets_seen(visible))


def _null_limits_of_parts(model: TransformerLM, task: Task) -> Limits:
    """Compute the limits of an encoder-decoder, of every kind of layer alone."""
    found = untrained_weights(model, task)
    if found is None:
        return Limits({}, {})
    probe, drawn = found
    groups = probe.groups(model.heads)
    parts: list[list[dict[str, Tensor]]] = [[] for _ in groups]
    for each in drawn:
        weights = concat_heads(each).unflatten(1, (-1, len(model.heads)))  # (B, models, N, T, T)
        for own, (part, heads) in zip(parts, groups, strict=True):
            own.append(reached(lifts(weights[:, :, heads].flatten(1, 2), part)))
    values = [{name: torch.cat([one[name] for one in own]) for name in own[0]} for own in parts]
    limits = [
        limits_of(one, percentile, offsets_seen(part.visible)) for one, (part, _) in zip(values, groups, strict=True)
    ]
    return _by_layer(model, groups, limits)


def _by_layer(model: TransformerLM, groups: Sequence[tuple[Probe, list[int]]], found: Sequence[Limits]) -> Limits:
    """Return the limits of each group of heads by layer."""
    layers = {model.heads[i].layer: limits for (_, heads), limits in zip(groups, found, strict=True) for i in heads}
    return Limits({}, {}, tuple(layers[layer] for layer in sorted(layers)))


def limits_of(
    values: Mapping[str, Tensor], limit: Callable[[Tensor], float], distances: Sequence[int] | None = None
) -> Limits:
    """Compute the limit of every target, and of offsets that up to each of their `distances`, by default 2, 3, ..."""
    each = {name: one for name, one in values.items() if name != "offset"}
    offsets = values["offset"].unbind(1) if "offset" in values else ()
    by_distance = zip(range(2, 2 + len(offsets)) if distances is None else distances, offsets, strict=False)
    return Limits({n: limit(v) for n, v in each.items()}, {d: limit(v) for d, v in by_distance})


def percentile(values: Tensor) -> float:
    """Compute the 99th percentile in float64; float32 would round the rank."""
    return float(torch.quantile(values.double(), PERCENTILE))


@torch.no_grad()
def random_lifts(model: TransformerLM, probe: Probe) -> dict[str, Tensor] | None:
    """Measure the lifts of at least RANDOM_HEADS heads with random queries and keys in the same model.

    Each has the inputs of one of the model's heads on the probe's rows, as the model is, and Gaussian maps to queries
    and keys of the Frobenius norms of that head's, the biases likewise. Positions act as in the model. ROWS rows at
    most, cut to MAX_KEYS tokens. Values as of `null_lifts`; None for custom attention.
    """
    if model.custom is not None:
        return None
    rows, weights = random_heads(model, probe)
    return reached(lifts(torch.cat(weights, 1), cut(probe, rows)))


def random_heads(model: TransformerLM, probe: Probe) -> tuple[Batch, list[Tensor]]:
    """Return the rows of `random_lifts`, and the weights of its heads on them, by layer (B, n, T, T)."""
    T = min(probe.ids.size(1), MAX_KEYS)
    times = math.ceil(RANDOM_HEADS / len(model.heads))
    rows = min(ROWS, max(MIN_ROWS, MAX_ALL // (times * len(model.heads) * T * T)))
    batch = Batch(probe.batch.inputs[:rows, :T], probe.batch.targets[:rows, :T])
    inputs = run_stream(model, batch.inputs).inputs
    generators = [stream_generator(SEED, "random-null", layer) for layer in range(len(model.blocks))]
    weights = random_weights(model, inputs, times, generators)
    return batch, [w.transpose(0, 1).flatten(1, 2) for w in weights]


def cut(probe: Probe, batch: Batch) -> Probe:
    """Return the probe of some of its rows, cut to their length."""
    n, T = batch.inputs.shape
    return probe_of(probe.task, batch, probe.shuffled[:n, :T], probe.visible[:T, :T], probe.inputs)


@torch.no_grad()
def random_weights(
    model: TransformerLM, inputs: Sequence[Tensor], times: int, generators: Sequence[Generator]
) -> list[Tensor]:
    """Compute the weights of `times` as many random heads as heads in every layer: (times, B, H, T, T) each.

    `inputs` are those of the blocks (B, T, D), as of `run_stream`; each layer has its generator. Positions, window and
    kind of attention act as in the model.
    """
    weights, pos = [], model.pos[: inputs[0].size(1)]
    with eval_mode(model):
        for block, x, generator in zip(model.blocks, inputs, generators, strict=False):
            q, k = random_projections(block.inner, block.attn_norm(x), times, generator)
            q, k = block.inner.positions.rotate(q, k, pos)
            weights.append(block.inner.weights(q, k, None, pos))
    return weights


def random_projections(
    attn: MultiHeadSelfAttention, x: Tensor, times: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Compute queries and keys of x (B, T, D) for `times` as many random heads as heads: (times, B, H, T, d) each."""
    H, d = attn.n_heads, attn.d_head
    weights, bias = attn.qkv_proj.weight.split(attn.widths), attn.qkv_proj.bias
    biases = [None] * 3 if bias is None else bias.split(attn.widths)
    found = []
    for weight, offset in list(zip(weights, biases, strict=True))[:2]:
        W = share_heads(weight.unflatten(0, (-1, d)), H)  # (H, d, D)
        drawn = _of_norm(W.flatten(1), times, generator).view(times * H * d, -1)
        y = (x @ drawn.T).unflatten(-1, (times, H, d))  # (B, T, times, H, d)
        if offset is not None:
            y = y + _of_norm(share_heads(offset.view(-1, 1, d), H).squeeze(1), times, generator).view(times, H, d)
        found.append(y.permute(2, 0, 3, 1, 4).contiguous())
    return found[0], found[1]


def _of_norm(like: Tensor, times: int, generator: Generator) -> Tensor:
    """Draw Gaussian vectors (times, H, n) with the norms of `like` (H, n)."""
    drawn = torch.randn(times, *like.shape, generator=generator).to(like)
    return drawn * (like.norm(dim=-1) / drawn.norm(dim=-1)).unsqueeze(-1)


@torch.no_grad()
def random_limits(model: TransformerLM, probe: Probe) -> Limits | None:
    """Compute the largest lift of random heads in the same model; None for custom attention."""

    def largest(values: Tensor) -> float:
        return float(values.max())

    if not probe.parts:
        values, T = random_lifts(model, probe), min(probe.ids.size(1), MAX_KEYS)
        return None if values is None else limits_of(values, largest, offsets_seen(probe.visible[:T, :T]))
    batch, weights = random_heads(model, probe)
    groups, found = probe.groups(model.heads), []
    for own, heads in groups:
        part, layers = cut(own, batch), sorted({model.heads[i].layer for i in heads})
        lift = reached(lifts(torch.cat([weights[layer] for layer in layers], 1), part))
        found.append(limits_of(lift, largest, offsets_seen(part.visible)))
    return _by_layer(model, groups, found)


def with_limits(heads: Sequence[HeadScore], untrained: Limits, random: Limits | None) -> list[HeadScore]:
    """Add to every score the limits that a label's lift must exceed."""
    found = []
    for head in heads:
        scores = {
            name: replace(
                score,
                null=untrained.at(head.layer).of(name, score.distance),
                random_null=None if random is None else random.at(head.layer).of(name, score.distance),
            )
            for name, score in head.scores.items()
        }
        found.append(replace(head, scores=scores))
    return found
