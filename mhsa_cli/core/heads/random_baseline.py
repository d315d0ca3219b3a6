"""Two null distributions of lifts: heads of untrained models of this shape, and random heads in the same model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.core.heads.capture import BLOCK_CELLS, block_rows, head_weights, weight_blocks
from mhsa_cli.core.heads.families import Lift
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, MIN_ROWS, Probe, build_probe, probe_of
from mhsa_cli.core.heads.scores import LiftSums
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


Lifts = list[tuple[list[int], dict[str, Lift]]]  # of drawn heads, by the layers that see the same keys


@torch.no_grad()
def null_lifts(model: TransformerLM, task: Task) -> Lifts:
    """Measure the lift on every target of at least HEADS heads of untrained models of this model's shape.

    Heads and rows depend on shape and task alone and are drawn on the CPU. Long rows allow fewer of them, which raises
    the limit. Heads of layers that see the same keys count alike. Empty where rows are too long to measure, or a custom
    block does not return its weights.
    """
    stacked = copy.deepcopy(model).cpu()
    probe = _null_probe(stacked, task)
    if probe is None:
        return []
    (B, T), n_heads = probe.ids.shape, model.mixers[0].n_heads
    at_once = BLOCK_CELLS // (B * n_heads * T * block_rows(T))

    def blocks() -> Iterator[tuple[int, int, int, Tensor]]:
        place = 0
        for models in _stacks(model, stacked, at_once):
            for layer, first, weights in weight_blocks(stacked, probe.ids.expand(models, B, T)):
                yield layer, place, first, weights
            place += models

    return _lifts(model, probe, _n_models(model), blocks())


def _lifts(model: TransformerLM, probe: Probe, times: int, blocks: Iterable[tuple[int, int, int, Tensor]]) -> Lifts:
    """Score `times` as many drawn heads as heads from blocks of weights (m, B, H, R, K): those of m models.

    Each comes with its layer, and the numbers of its first model and of its first query.
    """
    n_heads, sums, place = model.mixers[0].n_heads, dict[int, LiftSums](), dict[int, int]()
    groups = probe.layers(model.heads)
    for part, layers in groups:
        shared = LiftSums(part, len(layers) * times * n_heads)
        for number, layer in enumerate(layers):
            sums[layer], place[layer] = shared, number * times * n_heads
    for layer, model_number, first, weights in blocks:
        start = place[layer] + model_number * n_heads
        each = weights.transpose(0, 1).flatten(1, 2)
        sums[layer].add(each, slice(start, start + each.size(1)), first)
    return [(layers, sums[layers[0]].lifts()) for _, layers in groups]


def untrained_weights(model: TransformerLM, task: Task) -> tuple[Probe, Iterator[list[Tensor]]] | None:
    """Return rows, and the weights on them of many untrained models at once, by layer (M, B, H, T, T).

    They are those that `null_lifts` scores; None where it is empty.
    """
    stacked = copy.deepcopy(model).cpu()
    probe = _null_probe(stacked, task)
    if probe is None:
        return None
    ids, at_once = probe.ids, MAX_WEIGHTS // (len(model.heads) * probe.ids.numel() * task.seq_len)
    stacks = _stacks(model, stacked, at_once)
    return probe, (head_weights(stacked, ids.expand(models, *ids.shape)) for models in stacks)


def _null_probe(model: TransformerLM, task: Task) -> Probe | None:
    """Draw the rows of untrained heads; None where these are not measured."""
    if model.custom is not None and not model.custom.findings.has_weights:
        return None
    return build_probe(model, task, SEED, min(ROWS, max(MIN_ROWS, MAX_ALL // (HEADS * task.seq_len**2))))


def _stacks(model: TransformerLM, stacked: TransformerLM, at_once: int) -> Iterator[int]:
    """Load the next untrained models into `stacked`, until all were: yield how many."""
    drawings = untrained(model)
    while draws := [[p.detach().clone() for p in one.parameters()] for one in islice(drawings, max(1, at_once))]:
        for parameter, values in zip(stacked.parameters(), zip(*draws, strict=True), strict=True):
            parameter.data = torch.stack(values)
        yield len(draws)


def _n_models(model: TransformerLM) -> int:
    return math.ceil(HEADS / len(model.heads))


def untrained(model: TransformerLM) -> Iterator[TransformerLM]:
    """Yield models of this shape with at least HEADS heads in all, drawn from SEED; they share their storage."""
    drawn = copy.deepcopy(model).cpu()
    for index in range(_n_models(model)):
        draw_weights(drawn, stream_generator(SEED, "null", index))
        yield drawn


def null_limits(model: TransformerLM, task: Task) -> Limits:
    """Compute the 99th percentile of untrained heads."""
    return _by_layer(model, null_lifts(model, task), percentile)


def _by_layer(model: TransformerLM, found: Lifts, limit: Callable[[Tensor], float]) -> Limits:
    """Compute the limits of drawn heads; of an encoder-decoder, of every kind of layer alone."""
    each = [(layers, limits_of(lifts, limit)) for layers, lifts in found]
    if not model.source or not each:
        return each[0][1] if each else Limits({}, {})
    by_layer = {layer: limits for layers, limits in each for layer in layers}
    return Limits({}, {}, tuple(by_layer[layer] for layer in sorted(by_layer)))


def limits_of(found: Mapping[str, Lift], limit: Callable[[Tensor], float]) -> Limits:
    """Compute the limit of every target, and of offsets that of a head's largest lift up to each distance.

    A near offset is so not judged by far ones, which few queries see.
    """
    targets = {name: limit(lift.lift) for name, lift in found.items() if name != "offset"}
    by_distance = found["offset"].by_distance if "offset" in found else None
    if not by_distance:
        return Limits(targets, {})
    reached = torch.stack([*by_distance.values()], 1).cummax(1).values  # (N, D)
    return Limits(targets, {d: limit(values) for d, values in zip(by_distance, reached.unbind(1), strict=True)})


def percentile(values: Tensor) -> float:
    """Compute the 99th percentile in float64; float32 would round the rank."""
    return float(torch.quantile(values.double(), PERCENTILE))


@torch.no_grad()
def random_lifts(model: TransformerLM, probe: Probe) -> Lifts | None:
    """Measure the lifts of at least RANDOM_HEADS heads with random queries and keys in the same model.

    Each has the inputs of one of the model's heads on the probe's rows, as the model is, and Gaussian maps to queries
    and keys of the Frobenius norms of that head's, the biases likewise. Positions act as in the model. ROWS rows at
    most, cut to MAX_KEYS tokens. None for custom attention.
    """
    if model.custom is not None:
        return None
    T = min(probe.ids.size(1), MAX_KEYS)
    times = math.ceil(RANDOM_HEADS / len(model.heads))
    rows = min(ROWS, max(MIN_ROWS, MAX_ALL // (times * len(model.heads) * T * T)))
    ids = probe.ids[:rows, :T]
    generators = [stream_generator(SEED, "random-null", layer) for layer in range(len(model.blocks))]

    def blocks() -> Iterator[tuple[int, int, int, Tensor]]:
        drawn = random_heads(model, run_stream(model, ids).inputs, times, generators)
        for layer, (attn, q, k, pos) in enumerate(drawn):
            at_once = max(1, BLOCK_CELLS // (q[..., 0, 0].numel() * T))
            for first, _, weights in attn.weights_by_rows(q, k, pos, at_once):
                yield layer, 0, first, weights

    return _lifts(model, cut(probe, Batch(ids, probe.batch.targets[:rows, :T])), times, blocks())


def cut(probe: Probe, batch: Batch) -> Probe:
    """Return the probe of some of its rows, cut to their length."""
    n, T = batch.inputs.shape
    if not probe.parts:
        return probe_of(probe.task, batch, probe.shuffled[:n, :T], probe.visible[:T, :T], probe.inputs)
    of_kind = {id(part): cut(part, batch) for part in probe.parts}
    parts = [of_kind[id(part)] for part in probe.parts]
    return replace(parts[-1], parts=parts)


@torch.no_grad()
def random_weights(
    model: TransformerLM, inputs: Sequence[Tensor], times: int, generators: Sequence[Generator]
) -> list[Tensor]:
    """Compute the weights of the heads of `random_heads`: (times, B, H, T, T) of each layer."""
    return [attn.weights(q, k, None, pos) for attn, q, k, pos in random_heads(model, inputs, times, generators)]


def random_heads(
    model: TransformerLM, inputs: Sequence[Tensor], times: int, generators: Sequence[Generator]
) -> Iterator[tuple[MultiHeadSelfAttention, Tensor, Tensor, Tensor]]:
    """Draw `times` as many random heads as heads in every layer: yield its attention, queries, keys and positions.

    `inputs` are those of the blocks (B, T, D), as of `run_stream`; each layer has its generator. Queries and keys are
    (times, B, H, T, d). Positions, window and kind of attention act as in the model.
    """
    pos = model.pos[: inputs[0].size(1)]
    with eval_mode(model):
        for block, x, generator in zip(model.blocks, inputs, generators, strict=False):
            q, k = random_projections(block.inner, block.attn_norm(x), times, generator)
            yield block.inner, *block.inner.positions.rotate(q, k, pos), pos


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

    found = random_lifts(model, probe)
    return None if found is None else _by_layer(model, found, largest)


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
