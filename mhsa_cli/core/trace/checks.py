"""What must be true of attention, judged by what a walk through the model measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.kv_cache import KVCache
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.trace.tensors import Notes, size_of, walk, worst_of
from mhsa_cli.records.trace import TraceCheck, TracePart

# How far two roads to one result may part, as a share of the result's size.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.05}


def checks(
    model: TransformerLM, config: Config, note: Notes, ids: Tensor, told: Tensor, own: Tensor, cache: KVCache
) -> list[TraceCheck]:
    """Judge a walk over ids (B, T): `told` are its logits, `own` the model's, whose run filled the cache."""
    limit, kind = TOLERANCE[config.train.dtype], config.model.attention
    found = [_shapes(note), *_weights(config, note)]
    if "divisor" in note.worst:
        found.append(_scaling(config, note))
    if kind == "softmax":
        found.append(_within("mask first", note.worst["softmax"], limit))
    if ids.size(1) > 1:
        found.append(_causal(model, note, ids, told, own))
    if "paths" in note.worst:
        found.append(_within("two paths", note.worst["paths"], limit * max(1.0, note.worst["y"]), attention=kind))
    found.append(_within("logits", float(worst_of(own - told)), limit * max(1.0, float(worst_of(own)))))
    return [*found, _parameters(model, config, note), _cache(config, note, ids, cache)]


def _within(name: str, worst: float, limit: float, **facts: Any) -> TraceCheck:
    return TraceCheck(name, worst <= limit, worst, facts)  # a NaN is not within anything


def _all(name: str, count: int, wrong: Sequence[str]) -> TraceCheck:
    return TraceCheck(name, not wrong, float(len(wrong)), {"count": count, "wrong": wrong})


def _shapes(note: Notes) -> TraceCheck:
    """Compare every tensor's shape with what its symbols say."""
    wrong = [
        step.name
        for step in note.steps
        if [size_of(s, note.sizes) for s in step.symbols] != [int(n) for n in step.shape]
    ]
    return _all("shapes", len(note.steps), wrong)


def _weights(config: Config, note: Notes) -> list[TraceCheck]:
    kind = config.model.attention
    # A softmax is never taken in half precision; the products of linear attention are.
    half = config.train.dtype == "bfloat16" and kind != "linear"
    limit = TOLERANCE["float32" if half else config.train.dtype]
    return [
        _within("sum to one", note.worst["sum"], limit, attention=kind, rows=int(note.worst["rows"])),
        _within("future is zero", note.worst["hidden"], 0.0, attention=kind, window=config.model.window),
    ]


def _scaling(config: Config, note: Notes) -> TraceCheck:
    """Find what the scores were divided by, in every layer."""
    c, slack = config.model, 1e-2 if config.train.dtype == "bfloat16" else 1e-3
    right, wrong = math.sqrt(c.d_model / c.n_heads), math.sqrt(c.d_model)
    largest, smallest = note.worst["divisor"], -note.worst["-divisor"]
    divisor = max(largest, smallest, key=lambda d: abs(d - right))
    before, after = (next(step.std or 0.0 for step in note.steps if step.name == name) for name in ("scores", "scaled"))
    facts = {"divisor": divisor, "sqrt(d_head)": right, "sqrt(D)": wrong, "std": (before, after)}
    return _within("scaling", abs(divisor - right), slack * right, **facts)


def _causal(model: TransformerLM, note: Notes, ids: Tensor, told: Tensor, own: Tensor) -> TraceCheck:
    """Change the last token: no earlier logit may change, whether weights are materialised or not."""
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % note.sizes["V"]
    pairs = [(told, walk(model, changed, Notes(note.sizes, note.positions, silent=True))), (own, model(changed))]
    moved = max(float(worst_of((before - after)[:, :-1])) for before, after in pairs)
    same = all(torch.equal(before[:, :-1], after[:, :-1]) for before, after in pairs)
    return TraceCheck("causal", same, moved)


def attention_parameters(model: TransformerLM) -> int:
    """Count the attention parameters of all layers."""
    layers = (layer for attn in model.attention for layer in (attn.qkv_proj, attn.out_proj))
    return sum(p.numel() for layer in layers for p in layer.parameters())


def attention_formula(config: Config) -> str:
    """Write the count of one layer's attention parameters in symbols."""
    c = config.model
    own = c.n_kv_heads in (None, c.n_heads)
    weights, biases = ("4*D*D", "+4*D") if own else ("2*D*D+2*D*G*d_head", "+2*D+2*G*d_head")
    return weights + (biases if c.bias else "")


def _parameters(model: TransformerLM, config: Config, note: Notes) -> TraceCheck:
    counted, formula, n = attention_parameters(model), attention_formula(config), config.model.n_layers
    wanted = n * size_of(formula, note.sizes)
    facts = {"counted": counted, "wanted": wanted, "formula": formula, "layers": n}
    return TraceCheck("parameters", counted == wanted, float(counted - wanted), facts)


def _cache(config: Config, note: Notes, ids: Tensor, cache: KVCache) -> TraceCheck:
    """Count the numbers in a cache that has read the ids."""
    heads = "G" if "G" in note.sizes and config.model.attention != "linear" else "H"
    formula, counted, (B, T) = f"2*{heads}*d_head", sum(layer.numel for layer in cache), ids.shape
    per, rows = "token", B * T
    if config.model.attention == "linear":
        formula, per, rows = f"{heads}*d_head*d_head+{heads}*d_head", "row", B
    wanted = config.model.n_layers * rows * size_of(formula, note.sizes)
    facts = {"each": counted / rows / config.model.n_layers, "per": per, "formula": formula, "wanted": wanted}
    return TraceCheck("cache", counted == wanted, float(counted - wanted), facts)


def gradients_check(parts: Sequence[TracePart]) -> TraceCheck:
    """Judge the gradients of a backward pass."""
    bad = [part.name for part in parts if part.gradient_norm is None or not math.isfinite(part.gradient_norm)]
    return _all("gradients", len(parts), bad)
