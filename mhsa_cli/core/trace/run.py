"""A whole trace: the tensors of one forward pass, what must be true of them, and what the parts weigh."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.kv_cache import KVCache
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Batch, Task, TrainBatches
from mhsa_cli.core.tasks.base import sums
from mhsa_cli.core.trace.checks import attention_formula, attention_parameters, checks, gradients_check
from mhsa_cli.core.trace.tensors import Notes, symbols_of, walk
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import autocast
from mhsa_cli.records.trace import Trace, TraceCache, TracePart


def tell(
    config: Config, task: Task, *, batch: int = 2, forward_only: bool = False, device: torch.device | None = None
) -> Trace:
    """Trace the untrained model of a config on the first `batch` rows that it would be trained on, dropout off.

    The gradients of one backward pass are measured too, unless `forward_only`.
    """
    torch.set_num_threads(config.train.threads)
    device, train = device or torch.device("cpu"), config.train
    model = build_model(config, task).eval().to(device)
    ids, targets = first_rows(config, task, batch, device)
    note = Notes(symbols_of(model, ids, config.model.d_mlp), config.model.positions)
    cache = KVCache(config.model.n_layers)
    # Three regions: older torch keeps the narrow copies of the weights that one made without gradients to its end.
    with torch.no_grad(), autocast(train.dtype, device):
        told = walk(model, ids, note)
    with torch.set_grad_enabled(not forward_only), autocast(train.dtype, device):
        own = model(ids, cache=cache)
    with torch.no_grad(), autocast(train.dtype, device):
        found = checks(model, config, note, ids, told, own.detach(), cache)
    loss = _loss(own, targets, backward=not forward_only)
    parts = _parts(model)
    if not forward_only:
        found.append(gradients_check(parts))
    return Trace(
        task=task.name,
        attention=config.model.attention,
        positions=config.model.positions,
        seed=train.seed,
        n_layers=config.model.n_layers,
        sizes=note.sizes,
        steps=note.steps,
        flops=sum(step.flops for step in note.steps),
        bytes=sum(step.bytes for step in note.steps),
        loss=loss,
        checks=found,
        parts=parts,
        parameters=sum(p.numel() for p in model.parameters()),
        attention_parameters=attention_parameters(model),
        attention_formula=attention_formula(config),
        cache=_cache_sizes(model, cache, ids),
    )


def first_rows(config: Config, task: Task, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Give the first n rows of the first training batch: ids and targets, (n, T) each."""
    rows: Batch = TrainBatches(task, config.train.seed, config.train.batch_size)[1]
    if not 1 <= n <= len(rows.inputs):
        raise ValueError(f"{n} rows: a batch has {len(rows.inputs)}")
    # Copies: the drawn rows are part of a larger store, whose bytes are not theirs.
    return rows.inputs[:n].clone().to(device), rows.targets[:n].clone().to(device)


def _loss(logits: Tensor, targets: Tensor, *, backward: bool) -> float:
    with torch.set_grad_enabled(backward):
        total, _, count = sums(logits.unsqueeze(0), targets.unsqueeze(0))
        loss = (total / count).sum()
        if backward:
            loss.backward()
    return float(loss.detach())


def _parts(model: TransformerLM) -> list[TracePart]:
    """Sum parameters and gradients over what belongs together; a tied table is counted once, as the embedding."""
    counts: dict[str, int] = {}
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        key = next((part for mark, part in PARTS.items() if mark in name), "norms")
        names = ("q projection", "k projection", "v projection") if key == QKV else (key,)
        rows = model.attention[0].widths if key == QKV else [len(parameter)]
        gradient = parameter.grad
        for part, piece in zip(names, parameter.split(rows), strict=True):
            counts[part] = counts.get(part, 0) + piece.numel()
        for part, piece in zip(names, () if gradient is None else gradient.split(rows), strict=False):
            squares[part] = squares.get(part, 0.0) + float(piece.double().square().sum())
    norms = {part: square**0.5 for part, square in squares.items()}
    return [TracePart(part, count, norms.get(part)) for part, count in counts.items()]


QKV = "qkv_proj"
PARTS = {
    "tok_emb": "token embedding",
    "pos_emb": "position embedding",
    "qkv_proj": QKV,
    "out_proj": "out_proj",
    ".mlp.": "MLP",
    "lm_head": "lm_head",
}


def _cache_sizes(model: TransformerLM, cache: KVCache, ids: Tensor) -> TraceCache:
    """Measure what generation keeps of one row, all layers together, on a cache that has read the ids (B, T)."""
    (B, T), attn, longest = ids.shape, model.attention[0], model.max_seq_len
    held = [t for layer in cache for t in (layer.keys, layer.values, *(layer.state or ())) if t is not None]
    row = sum(t.numel() * t.element_size() for t in held) // B
    if attn.kind == "linear":
        return TraceCache(False, 0, row, row, longest)
    token = row // T
    return TraceCache(True, token, token * longest, token * longest * attn.n_heads // attn.n_kv_heads, longest)
