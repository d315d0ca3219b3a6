"""QK and OV circuits of heads, direct logit attribution and composition, computed from the weights.

The terms are those of Elhage et al. 2021. Everything runs on a float64 copy of the model, so that rounding is not
mistaken for a result.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhsa_cli.core.heads.capture import BLOCK_CELLS, finite_or_none
from mhsa_cli.core.heads.composition import (
    affordable_draws,
    composition_limit,
    compositions,
    n_pairs,
    rarely_exceeded,
    rotations,
)
from mhsa_cli.core.heads.logit_attribution import RowMean, direct_layers, direct_logits, direct_notes
from mhsa_cli.core.heads.stream import output_maps
from mhsa_cli.core.model.attention import attention_scores, share_heads, split_heads
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import Batch, stream_generator
from mhsa_cli.records.circuits import Circuits, Composition, HeadCircuits
from mhsa_cli.records.claims import Claim, unmeasured
from mhsa_cli.text import Head, plural

PROBE_ROWS = 64  # fewer where rows are long
PROBE_CELLS = 2**23  # attention weights or logits of all these rows
PROBE_PRODUCTS = 2**32  # multiplications of one forward pass over them: a second or two in float64
TOP1_CELLS = 2**24  # logits computed for a head's top-1: all tokens up to a vocabulary of 4,096
NULL_CELLS = 2**26  # logits computed for the top-1 of rotated heads
NULL_LEVEL = 0.01  # chance that a rotated head exceeds the null
MAX_PAIRS = 2**16  # of heads, whose composition is computed
NOISE = 1e-8  # relative to its factors, a number below this is zero to float32


@torch.no_grad()
def circuits(model: TransformerLM, task: Task, seed: int, step: int) -> Circuits:
    """Compute every head's circuits from the weights and on held-out rows; the model does not change.

    What is not defined for this model is None, and a note says why.
    """
    cells = max(model.attention[0].n_heads * task.seq_len, task.vocab_size) * task.seq_len
    products = sum(p.numel() for p in model.parameters()) * task.seq_len
    rows = max(1, min(PROBE_ROWS, PROBE_CELLS // cells, PROBE_PRODUCTS // products))
    drawn = fixed_batch(task, seed, "probe", PROBE_ROWS)
    batch = Batch(drawn.inputs[:rows], drawn.targets[:rows])
    inputs = f"{plural(len(batch.inputs), 'row')} of {task.name}"
    exact = copy.deepcopy(model).eval()
    if not all(bool(p.isfinite().all()) for p in exact.parameters()):
        heads = [HeadCircuits(layer, h, None, None, None, None) for layer, h in exact.heads]
        return Circuits(step, heads, [], None, inputs, [unmeasured("no circuits")])
    logits = exact(batch.inputs.to(exact.pos.device))  # in the model's own dtype
    notes: list[Claim] = []
    if logits.dtype.itemsize < 4:
        notes.append(unmeasured("low precision", dtype=str(logits.dtype).removeprefix("torch.")))
    exact, logits = exact.cpu().double(), logits.cpu().double()
    shares = qk_shares(exact, batch.inputs, notes)
    ov = ov_circuits(exact, notes)
    direct, error = direct_parts(exact, batch, logits, notes)
    pairs, limit = composed(exact, seed, notes)
    heads = []
    for head in exact.heads:
        top1, copying = ov.get(head, (None, None))
        mean, se = direct.get(head, (None, None))
        heads.append(HeadCircuits(*head, shares.get(head), top1, copying, finite_or_none(mean), finite_or_none(se)))
    return Circuits(step, heads, pairs, error, inputs, notes, limit, *ov_null(exact, seed))


def qk_shares(model: TransformerLM, ids: Tensor, notes: list[Claim]) -> dict[Head, Mapping[str, float]]:
    """Attribute the variance of the first layer's scores to token, position and bias; a note says where it cannot."""
    first, attn = model.blocks[0], model.attention[0]
    if attn.kind != "softmax":
        notes.append(unmeasured("no scores for QK shares", attention=attn.kind))
        return {}
    if not isinstance(first.attn_norm, nn.Identity):
        notes.append(unmeasured("no QK shares after a norm"))
        return {}
    if len(model.blocks) > 1:
        notes.append(unmeasured("QK shares of layer 0 only"))
    shares = score_shares(model, ids)
    constant = [str(Head(0, head)) for head, share in enumerate(shares) if share is None]
    if constant:
        notes.append(unmeasured("no QK shares of constant scores", heads=constant))
    return {Head(0, head): share for head, share in enumerate(shares) if share is not None}


def score_parts(model: TransformerLM, ids: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split the first layer's queries and keys (B, H, T, d) into the terms of token, position and bias.

    Where they are rotated, the terms are their "mean" over tokens and positions, and each "tok" minus that mean.
    """
    attn, pos = model.attention[0], model.pos[: ids.size(1)]
    tok = model.tok_emb(ids)
    streams = {"tok": tok}
    if model.positions.overrides("embed"):
        streams["pos"] = model.positions.embed(torch.zeros_like(tok), pos)
    W_Q, W_K, _ = attn.qkv_proj.weight.split(attn.widths)
    parts = {name: (F.linear(x, W_Q), F.linear(x, W_K)) for name, x in streams.items()}
    if attn.qkv_proj.bias is not None:
        b_Q, b_K, _ = attn.qkv_proj.bias.split(attn.widths)
        parts["bias"] = (b_Q.expand(*ids.shape, -1), b_K.expand(*ids.shape, -1))
    if model.positions.overrides("rotate"):
        whole = [torch.stack(sides).sum(0) for sides in zip(*parts.values(), strict=True)]
        mean = [side.mean((0, 1)).expand_as(side) for side in whole]
        parts = {"mean": (mean[0], mean[1]), "tok": (whole[0] - mean[0], whole[1] - mean[1])}
    queries, keys = {}, {}
    for name, (q, k) in parts.items():
        # A rotation is linear: the rotated parts sum to the rotated whole.
        q, k = model.positions.rotate(split_heads(q, attn.n_heads), split_heads(k, attn.n_kv_heads), pos)
        queries[name], keys[name] = q, share_heads(k, attn.n_heads)
    return queries, keys


def score_shares(model: TransformerLM, ids: Tensor) -> list[Mapping[str, float] | None]:
    """Compute each head of layer 0's Cov(S_ij, S) / Var(S) by query part i and key part j, on ids (B, T).

    Scores are centred over each query's visible keys. The shares of a head sum to 1; None where Var(S) is 0. "distance"
    is the share of what is added for the distance; with rotations that of the mean query and key, which is the mean
    score of all pairs of tokens at each distance, and "token-distance" is the rest.
    """
    attn, (B, T) = model.attention[0], ids.shape
    H, pos = attn.n_heads, model.pos[:T]
    queries, keys = score_parts(model, ids)
    q, k = (torch.stack(list(parts.values())).sum(0) for parts in (queries, keys))
    bias = model.positions.bias(pos, pos)
    sums = {f"{i}-{j}": q.new_zeros(H) for i in queries for j in keys}
    sums |= {} if bias is None else {"distance": q.new_zeros(H)}
    total = q.new_zeros(H)
    rows = max(1, BLOCK_CELLS // (B * H * T))
    for first in range(0, T, rows):
        part = slice(first, min(first + rows, T))
        visible = attn.visible[part, :T]
        offset = None if bias is None else bias[..., part, :]
        scores = attention_scores(q[..., part, :], k, offset)  # (B, H, rows, T)
        mean = (scores * visible).sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)
        centred = (scores - mean) * visible
        total += centred.square().sum((0, 2, 3))
        # Against centred scores C, S_ij need not be centred: sum_k C S_ij = q_i (C k_j).
        for j, key in keys.items():
            read = centred @ key / math.sqrt(attn.d_head)  # (B, H, rows, d)
            for i, query in queries.items():
                sums[f"{i}-{j}"] += (query[..., part, :] * read).sum((0, 2, 3))
        if offset is not None:
            sums["distance"] += (centred * offset).sum((0, 2, 3))
    sizes = [torch.stack(list(parts.values())).square().sum((0, -1)).mean((0, 2)) for parts in (queries, keys)]
    floor = NOISE**2 * B * T * sizes[0] * sizes[1] / attn.d_head  # (H,)
    shares: list[Mapping[str, float] | None] = []
    for h in range(H):
        known = bool(total[h] > floor[h]) and math.isfinite(total[h])
        found = {name: float(value[h] / total[h]) for name, value in sums.items()}
        if model.positions.overrides("rotate"):
            found = {"distance": found["mean-mean"], "token-distance": 1 - found["mean-mean"]}
        shares.append(found if known else None)
    return shares


def ov_circuits(model: TransformerLM, notes: list[Claim]) -> dict[Head, tuple[float | None, float | None]]:
    """Compute top-1 and copying of W_E W_V W_O W_U for every head between the embeddings and the logits."""
    block, maps = model.blocks[0], ov_maps(model)
    if not maps:
        notes.append(unmeasured("no OV circuits"))
    elif not isinstance(block.attn_norm, nn.Identity):
        notes.append(unmeasured("OV circuits ignore norms"))
    W_E, V = model.tok_emb.weight, len(model.tok_emb.weight)
    tokens = torch.arange(0, V, -(-V * V // TOP1_CELLS))
    if maps and len(tokens) < V:
        notes.append(unmeasured("top-1 of some tokens", tokens=len(tokens), vocab_size=V))
    found = {}
    for head, (W_V, written) in maps.items():
        read = W_E @ W_V
        best, copies = top1(read[tokens], written, tokens), copying(read, written)
        found[head] = finite_or_none(best), finite_or_none(copies)
    return found


def ov_maps(model: TransformerLM) -> dict[Head, tuple[Tensor, Tensor]]:
    """Collect W_V (D, d) and W_O W_U (d, V) of every head between the embeddings and the logits."""
    layers = direct_layers(model)
    if not model.blocks[0].residual and layers != [0]:
        return {}
    found = {}
    for layer in layers:
        attn = model.attention[layer]
        W_V = attn.qkv_proj.weight.split(attn.widths)[2].unflatten(0, (attn.n_kv_heads, attn.d_head))
        for h, W_O in enumerate(output_maps(attn)):
            values = W_V[h // (attn.n_heads // attn.n_kv_heads)].t()
            found[Head(layer, h)] = values, W_O @ model.lm_head.weight.t()
    return found


def ov_null(model: TransformerLM, seed: int) -> tuple[float | None, float | None]:
    """Compute the top-1 and the copying that 1% of heads exceed if a random rotation turns what they read.

    The heads are this model's, so that norms and singular values are too.
    """
    maps, W_E = ov_maps(model), model.tok_emb.weight
    V, D = W_E.shape
    draws = affordable_draws(D**3 + len(maps) * V * D * model.attention[0].d_head)
    if not maps or not draws:
        return None, None
    tokens = torch.arange(0, V, max(1, draws * len(maps) * V * V // NULL_CELLS))
    figures: tuple[list[float], list[float]] = [], []
    for rotation in rotations(D, draws, stream_generator(seed, "ov-null", 0)):
        for W_V, written in maps.values():
            read = W_E @ (rotation @ W_V)
            figures[0].extend(top1(read[:, tokens], written, tokens).tolist())
            figures[1].extend(copying(read, written).tolist())
    best, copies = ([figure for figure in drawn if math.isfinite(figure)] for drawn in figures)
    return rarely_exceeded(best, NULL_LEVEL), rarely_exceeded(copies, NULL_LEVEL)


def top1(read: Tensor, written: Tensor, tokens: Tensor) -> Tensor:
    """Compute the fraction of tokens t (n,) whose row of read @ written, (..., n, d) @ (d, V), has its maximum at t.

    Maxima shared with other tokens do not count; NaN where a logit is not finite. Source: ARENA (its copying score).
    """
    right, finite = read.new_zeros(read.shape[:-2]), torch.ones(read.shape[:-2], dtype=torch.bool)
    size = max(1, BLOCK_CELLS // (right.numel() * written.size(-1)))
    for rows, own in zip(read.split(size, -2), tokens.split(size), strict=True):
        logits = rows @ written
        place = own.unsqueeze(-1).expand(*logits.shape[:-1], 1)
        right += (logits.gather(-1, place) > logits.scatter(-1, place, -math.inf).amax(-1, keepdim=True)).sum((-2, -1))
        finite &= logits.isfinite().all(-1).all(-1)
    return torch.where(finite, right / len(tokens), math.nan)


def copying(read: Tensor, written: Tensor) -> Tensor:
    """Compute Re(sum lambda) / sum |lambda| over the eigenvalues of read @ written, (..., V, d) @ (d, V).

    NaN where all are zero or not finite. Source: Elhage et al. 2021.
    """
    small = written @ read  # (..., d, d), with the nonzero eigenvalues of the (V, V) matrix
    finite = small.isfinite().all(-1).all(-1)
    values = torch.linalg.eigvals(torch.where(finite[..., None, None], small, 0.0))
    size = values.abs().sum(-1)
    return torch.where(size > NOISE * read.norm(dim=(-2, -1)) * written.norm(), values.real.sum(-1) / size, math.nan)


def direct_parts(
    model: TransformerLM, batch: Batch, logits: Tensor, notes: list[Claim]
) -> tuple[dict[Head, RowMean], float | None]:
    """Compute direct logits and the residual error, with notes on what they omit."""
    figures, error = direct_logits(model, batch, logits)
    notes += direct_notes(model, batch)
    if finite_or_none(error) is None and direct_layers(model):
        notes.append(unmeasured("logits not finite"))
    return figures, finite_or_none(error)


def composed(model: TransformerLM, seed: int, notes: list[Claim]) -> tuple[list[Composition], float | None]:
    """Compute the composition of all pairs of heads on one residual stream and its limit, with notes on omissions."""
    block = model.blocks[0]
    pairs = n_pairs(model)
    if not pairs:
        return [], None
    if not block.residual:
        notes.append(unmeasured("no composition without residuals"))
        return [], None
    if pairs > MAX_PAIRS:
        notes.append(unmeasured("too many pairs of heads", pairs=pairs, limit=MAX_PAIRS))
        return [], None
    kind = model.attention[0].kind
    omitted = [] if isinstance(block.attn_norm, nn.Identity) else ["norms"]
    omitted += ["RoPE"] if model.positions.overrides("rotate") and kind == "softmax" else []
    omitted += ["MLPs"] if block.mlp is not None else []
    if omitted:
        notes.append(unmeasured("composition ignores", omitted=omitted))
    if kind != "softmax":
        notes.append(unmeasured("V-composition only", attention=kind))
    found = list(compositions(model))
    if len(found) < pairs:
        notes.append(unmeasured("pairs without composition", missing=pairs - len(found), pairs=pairs))
    limit = composition_limit(model, stream_generator(seed, "composition", 0))
    if limit is None:
        notes.append(unmeasured("composition not compared"))
    return found, limit
