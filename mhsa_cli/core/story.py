"""A whole trace: the tensors of one forward pass, what must be true of them, and what the parts weigh."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mhsa_cli.config.schema import Config
from mhsa_cli.core.engine import build_model
from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.stack import sums
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.trace import Notes, size_of, symbols_of, walk, worst_of
from mhsa_cli.records import Trace, TraceCache, TraceCheck, TracePart

FLOAT_BYTES = 4
TOLERANCE = 1e-5  # between two roads to one result, in float32, as a share of the result's size


def tell(config: Config, task: Task, *, batch: int, forward_only: bool = False) -> Trace:
    """Trace the untrained model of a config on `batch` rows of its task.

    The gradients of one backward pass are measured too, unless `forward_only`.
    """
    model = build_model(config, task).eval()
    rows = task.sample(batch, stream_generator(config.train.seed, "trace", 0))
    note = Notes(symbols_of(model, rows.inputs, config.model.d_mlp), config.model.positions)
    with torch.no_grad():
        logits = walk(model, rows.inputs, note)
        checks = [*_checks(model, note, rows.inputs, logits), _counted(model, config, note.sizes)]
    loss = _loss(model, rows.inputs, rows.targets, backward=not forward_only)
    return Trace(
        task=task.name,
        attention=config.model.attention,
        positions=config.model.positions,
        seed=config.train.seed,
        n_layers=config.model.n_layers,
        sizes=note.sizes,
        steps=note.steps,
        loss=loss,
        checks=checks,
        parts=_parts(model, with_gradients=not forward_only),
        parameters=sum(p.numel() for p in model.parameters()),
        attention_parameters=_attention_parameters(model),
        attention_formula=_formula(config),
        cache=_cache(config, model),
    )


def _loss(model: TransformerLM, inputs: Tensor, targets: Tensor, *, backward: bool) -> float:
    with torch.set_grad_enabled(backward):
        logits = model(inputs)
        assert isinstance(logits, Tensor)
        total, _, count = sums(logits.unsqueeze(0), targets.unsqueeze(0))
        loss = (total / count).sum()
        if backward:
            loss.backward()
    return float(loss.detach())


def _checks(model: TransformerLM, note: Notes, ids: Tensor, logits: Tensor) -> list[TraceCheck]:
    """Judge what the walk measured, and what two more forward passes show."""
    attn, worst = model.attention[0], note.worst
    where = "outside the window" if attn.window else "on the future"
    found = [
        TraceCheck("rows sum to one", worst["sum"] <= TOLERANCE, worst["sum"], "every row of weights sums to one"),
        TraceCheck(
            "future is zero", worst["hidden"] == 0, worst["hidden"], f"no weight {where}: the largest is exactly 0"
        ),
    ]
    if attn.kind == "softmax":
        off = max(abs(d - math.sqrt(attn.d_head)) for d in (worst["divisor"], -worst["-divisor"]))
        right, wrong = math.sqrt(attn.d_head), math.sqrt(attn.d_model)
        text = f"scores are divided by {right:.4g} = sqrt(d_head), not by {wrong:.4g} = sqrt(D)"
        found.append(TraceCheck("scaling", off <= 1e-3 * right, off, text))
        text = "the weights are the softmax of the masked scores: the mask comes first"
        found.append(TraceCheck("mask before softmax", worst["softmax"] <= TOLERANCE, worst["softmax"], text))
    if ids.size(1) > 1:
        found.append(_causal(model, ids))
    if "paths" in worst:
        size = max(1.0, worst["y"])
        text = "materialised weights and the path of training agree"
        found.append(TraceCheck("two paths", worst["paths"] <= TOLERANCE * size, worst["paths"], text))
    own = model(ids)
    assert isinstance(own, Tensor)
    off = float(worst_of(own - logits))
    text = "the logits told here are the model's own"
    return [*found, TraceCheck("logits", off <= TOLERANCE * max(1.0, float(worst_of(own))), off, text)]


def _causal(model: TransformerLM, ids: Tensor) -> TraceCheck:
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % model.tok_emb.weight.size(0)
    before, after = model(ids), model(changed)
    assert isinstance(before, Tensor) and isinstance(after, Tensor)
    moved = float(worst_of((before - after)[:, :-1]))
    text = "another last token leaves all earlier logits as they were, bit for bit"
    return TraceCheck("causal", torch.equal(before[:, :-1], after[:, :-1]), moved, text)


def _attention_parameters(model: TransformerLM) -> int:
    blocks = (layer for attn in model.attention for layer in (attn.qkv_proj, attn.out_proj))
    return sum(p.numel() for layer in blocks for p in layer.parameters())


def _formula(config: Config) -> str:
    c = config.model
    own = c.n_kv_heads in (None, c.n_heads)
    weights, biases = ("4*D*D", "+4*D") if own else ("2*D*D+2*D*G*d_head", "+2*D+2*G*d_head")
    return weights + (biases if c.bias else "")


def _counted(model: TransformerLM, config: Config, sizes: Mapping[str, int]) -> TraceCheck:
    counted, formula = _attention_parameters(model), _formula(config)
    wanted = config.model.n_layers * size_of(formula, sizes)
    layers = f"{config.model.n_layers} x ({formula})" if config.model.n_layers > 1 else formula
    text = f"{counted:,} attention parameters = {layers}"
    return TraceCheck("parameters", counted == wanted, float(counted - wanted), text)


def _parts(model: TransformerLM, *, with_gradients: bool) -> list[TracePart]:
    """Sum parameters and gradients over what belongs together; a tied head is counted once, with the embedding."""
    groups: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        key = next((part for mark, part in PARTS.items() if mark in name), "norms")
        groups.setdefault(key, []).append(parameter)
    found = []
    for name, members in groups.items():
        gradients = [m.grad.double().square().sum() for m in members if m.grad is not None]
        norm = float(torch.stack(gradients).sum().sqrt()) if gradients and with_gradients else None
        found.append(TracePart(name, sum(m.numel() for m in members), norm))
    return found


PARTS = {
    "tok_emb": "token embedding",
    "pos_emb": "position embedding",
    "qkv_proj": "qkv_proj",
    "out_proj": "out_proj",
    ".mlp.": "MLP",
    "lm_head": "lm_head",
}


def _cache(config: Config, model: TransformerLM) -> TraceCache:
    """Count what generation keeps of one row, all layers together."""
    attn, layers = model.attention[0], len(model.attention)
    if attn.kind == "linear":
        state = layers * attn.n_heads * attn.d_head * (attn.d_head + 1) * FLOAT_BYTES
        return TraceCache(False, 0, state, state, model.max_seq_len)
    token, full = (layers * 2 * heads * attn.d_head * FLOAT_BYTES for heads in (attn.n_kv_heads, attn.n_heads))
    return TraceCache(True, token, token * model.max_seq_len, full * model.max_seq_len, model.max_seq_len)
