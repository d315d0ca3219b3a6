"""The trace of a config: the tensors of one forward pass, checks of what must hold, and the parameters by part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.kv_cache import KVCache
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, TrainBatches
from mhsa_cli.core.tasks.base import sums
from mhsa_cli.core.trace.tensors import Recorder, forward, max_abs, size_of, symbols_of
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import autocast
from mhsa_cli.records.trace import Trace, TraceCache, TraceCheck, TracePart

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.05}  # of two computations, relative to the result
PARTS = {  # by a piece of the parameter's name; any other is a norm
    "tok_emb": "token embedding",
    "pos_emb": "position embedding",
    "qkv_proj": "qkv_proj",
    "out_proj": "out_proj",
    ".mlp.": "MLP",
    "lm_head": "lm_head",
}


def run_trace(
    config: Config,
    task: Task,
    *,
    batch: int = 2,
    forward_only: bool = False,
    device: torch.device | None = None,
    model: TransformerLM | None = None,
) -> Trace:
    """Trace the initial model of a config on the first `batch` rows of its training, without dropout.

    `model` is the one with weights from a file; default: drawn from the seed. The gradients of one
    backward pass are measured too, unless `forward_only`.
    """
    torch.set_num_threads(config.train.threads)
    device, train = device or torch.device("cpu"), config.train
    model = (model or build_model(config, task)).eval().to(device)
    ids, targets = first_rows(config, task, batch, device)
    record = Recorder(symbols_of(model, ids, config.model.d_mlp), config.model.positions)
    cache = KVCache(config.model.n_layers) if config.model.causal else None
    # Three autocast regions: some versions of torch cache weights cast without gradients until a region ends.
    with torch.no_grad(), autocast(train.dtype, device):
        recorded = forward(model, ids, record)
    with torch.set_grad_enabled(not forward_only), autocast(train.dtype, device):
        logits = model(ids, cache=cache)
    with torch.no_grad(), autocast(train.dtype, device):
        checks = _checks(model, config, record, ids, recorded, logits.detach(), cache)
    loss = _loss(logits, targets, backward=not forward_only)
    parts = _parts(model)
    if not forward_only:
        bad = [part.name for part in parts if part.gradient_norm is None or not math.isfinite(part.gradient_norm)]
        checks.append(_all("gradients", len(parts), bad))
    return Trace(
        task=task.name,
        attention=config.model.attention,
        positions=config.model.positions,
        seed=train.seed,
        init=train.init,
        n_layers=config.model.n_layers,
        sizes=record.sizes,
        steps=record.steps,
        flops=sum(step.flops for step in record.steps),
        bytes=sum(step.bytes for step in record.steps),
        loss=loss,
        checks=checks,
        parts=parts,
        parameters=sum(p.numel() for p in model.parameters()),
        attention_parameters=_attention_parameters(model),
        attention_formula=_attention_formula(config),
        cache=None if cache is None else _cache_sizes(model, cache, ids),
    )


def first_rows(config: Config, task: Task, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the first n rows of the first training batch: ids and targets, (n, T) each."""
    rows = TrainBatches.of(task, config.train)[1]
    if not 1 <= n <= len(rows.inputs):
        raise ValueError(f"{n} rows: a batch has {len(rows.inputs)}")
    # Copies: the batch is a view of a larger buffer, whose bytes would be counted.
    return rows.inputs[:n].clone().to(device), rows.targets[:n].clone().to(device)


def _loss(logits: Tensor, targets: Tensor, *, backward: bool) -> float:
    with torch.set_grad_enabled(backward):
        total, _, count = sums(logits.unsqueeze(0), targets.unsqueeze(0))
        loss = (total / count).sum()
        if backward:
            loss.backward()
    return float(loss.detach())


def _parts(model: TransformerLM) -> list[TracePart]:
    """Sum parameters and squared gradients by part; a tied table counts as the embedding only."""
    counts: dict[str, int] = {}
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        key = next((part for mark, part in PARTS.items() if mark in name), "norms")
        names, rows = [key], [len(parameter)]
        if key == "qkv_proj":
            names, rows = ["q projection", "k projection", "v projection"], model.attention[0].widths
        gradients = [None] * len(rows) if parameter.grad is None else parameter.grad.split(rows)
        for part, piece, gradient in zip(names, parameter.split(rows), gradients, strict=True):
            counts[part] = counts.get(part, 0) + piece.numel()
            if gradient is not None:
                squares[part] = squares.get(part, 0.0) + float(gradient.double().square().sum())
    norms = {part: square**0.5 for part, square in squares.items()}
    return [TracePart(part, count, norms.get(part)) for part, count in counts.items()]


def _cache_sizes(model: TransformerLM, cache: KVCache, ids: Tensor) -> TraceCache:
    """Measure the cache of one row, all layers together; `cache` has read ids (B, T)."""
    (B, T), attn, longest = ids.shape, model.attention[0], model.max_seq_len
    row = sum(t.numel() * t.element_size() for layer in cache for t in layer.tensors) // B
    if attn.kind == "linear":
        return TraceCache(False, 0, row, row, longest)
    token = row // T
    return TraceCache(True, token, token * longest, token * longest * attn.n_heads // attn.n_kv_heads, longest)


def _checks(
    model: TransformerLM,
    config: Config,
    record: Recorder,
    ids: Tensor,
    recorded: Tensor,
    logits: Tensor,
    cache: KVCache | None,
) -> list[TraceCheck]:
    """Check a recorded pass over ids (B, T) against the model's own `logits`, whose pass filled the cache."""
    limit, kind, worst = TOLERANCE[config.train.dtype], config.model.attention, record.worst
    shapes = ((step, [size_of(s, record.sizes) for s in step.symbols]) for step in record.steps)
    wrong = [step.name for step, expected in shapes if expected != [int(n) for n in step.shape]]
    # Softmax is computed in float32 under autocast; the products of linear attention are not.
    exact = TOLERANCE["float32"] if config.train.dtype == "bfloat16" and kind != "linear" else limit
    found = [
        _all("shapes", len(record.steps), wrong),
        _within("sum to one", worst["sum"], exact, attention=kind, rows=int(worst["rows"])),
    ]
    if "hidden" in worst:
        found.append(_within("future is zero", worst["hidden"], 0.0, attention=kind, window=config.model.window))
    if "divisor" in worst:
        found.append(_scaling(config, record))
    if kind == "softmax" and config.model.causal:
        found.append(_within("mask first", worst["softmax"], limit))
    if ids.size(1) > 1:
        found.append(_last_token(model, record, ids, recorded, logits, config.model.causal))
    if "paths" in worst:
        found.append(_within("two paths", worst["paths"], limit * max(1.0, worst["y"]), attention=kind))
    found.append(_within("logits", float(max_abs(logits - recorded)), limit * max(1.0, float(max_abs(logits)))))
    counts = [] if cache is None else [_cache_count(config, record, ids, cache)]
    return [*found, _parameter_count(model, config, record), *counts]


def _within(name: str, worst: float, limit: float, **facts: Any) -> TraceCheck:
    return TraceCheck(name, worst <= limit, worst, facts)  # False for NaN


def _all(name: str, count: int, wrong: Sequence[str]) -> TraceCheck:
    return TraceCheck(name, not wrong, float(len(wrong)), {"count": count, "wrong": wrong})


def _scaling(config: Config, record: Recorder) -> TraceCheck:
    """Compare the measured divisor of the scores, the worst of all layers, with sqrt(d_head)."""
    c, slack = config.model, 1e-2 if config.train.dtype == "bfloat16" else 1e-3
    right, wrong = math.sqrt(c.head_width), math.sqrt(c.d_model)
    largest, smallest = record.worst["divisor"], -record.worst["-divisor"]
    divisor = max(largest, smallest, key=lambda d: abs(d - right))
    std = {step.name: step.std or 0.0 for step in reversed(record.steps)}  # of layer 0
    facts = {"divisor": divisor, "sqrt(d_head)": right, "sqrt(D)": wrong, "std": (std["scores"], std["scaled"])}
    return _within("scaling", abs(divisor - right), slack * right, **facts)


def _last_token(
    model: TransformerLM, record: Recorder, ids: Tensor, recorded: Tensor, logits: Tensor, causal: bool
) -> TraceCheck:
    """Change the last token: in both implementations no earlier logit may change, or without a mask all rows' must."""
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % record.sizes["V"]
    silent = Recorder(record.sizes, record.positions, silent=True)
    pairs = [(recorded, forward(model, changed, silent)), (logits, model(changed))]
    moved = max(float(max_abs((before - after)[:, :-1])) for before, after in pairs)
    if not causal:
        seen = all(bool(((a - b)[:, :-1] != 0).flatten(1).any(1).all()) for a, b in pairs)
        return TraceCheck("unmasked", seen, moved)
    return TraceCheck("causal", all(torch.equal(a[:, :-1], b[:, :-1]) for a, b in pairs), moved)


def _attention_parameters(model: TransformerLM) -> int:
    layers = (layer for attn in model.attention for layer in (attn.qkv_proj, attn.out_proj))
    return sum(p.numel() for layer in layers for p in layer.parameters())


def _attention_formula(config: Config) -> str:
    """Write the attention parameters of one layer in symbols."""
    c = config.model
    shared = c.n_kv_heads not in (None, c.n_heads)
    weights, biases = ("2*D*D+2*D*G*d_head", "+2*D+2*G*d_head") if shared else ("4*D*D", "+4*D")
    if c.head_width * c.n_heads != c.d_model:
        kv = "G" if shared else "H"
        weights, biases = f"2*D*H*d_head+2*D*{kv}*d_head", f"+D+H*d_head+2*{kv}*d_head"
    return weights + (biases if c.bias else "")


def _parameter_count(model: TransformerLM, config: Config, record: Recorder) -> TraceCheck:
    counted, formula, n = _attention_parameters(model), _attention_formula(config), config.model.n_layers
    expected = n * size_of(formula, record.sizes)
    facts = {"counted": counted, "wanted": expected, "formula": formula, "layers": n}
    return TraceCheck("parameters", counted == expected, float(counted - expected), facts)


def _cache_count(config: Config, record: Recorder, ids: Tensor, cache: KVCache) -> TraceCheck:
    """Compare the numbers in a cache that has read the ids with their formula."""
    counted, (B, T) = sum(t.numel() for layer in cache for t in layer.tensors), ids.shape
    heads = "G" if "G" in record.sizes else "H"
    formula, per, rows = f"2*{heads}*d_head", "token", B * T
    if config.model.attention == "linear":
        formula, per, rows = "H*d_head*d_head+H*d_head", "row", B
    expected = config.model.n_layers * rows * size_of(formula, record.sizes)
    facts = {"each": counted / rows / config.model.n_layers, "per": per, "formula": formula, "wanted": expected}
    return TraceCheck("cache", counted == expected, float(counted - expected), facts)
