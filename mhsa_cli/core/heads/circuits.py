"""QK and OV circuits of heads, direct logit attribution and composition, computed from the weights.

The terms are those of Elhage et al. 2021. Everything runs on a float64 copy of the model, so that rounding is not
mistaken for a result.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mhsa_cli.core.heads.capture import BLOCK_CELLS, finite_or_none
from mhsa_cli.core.heads.logit_attribution import direct_layers, direct_logits, output_maps
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, attention_scores, share_heads, split_heads
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import IGNORE, Batch, stream_generator
from mhsa_cli.records.heads import Circuits, Composition, HeadCircuits
from mhsa_cli.text import Head, plural

PROBE_ROWS = 64  # fewer where rows are long
PROBE_CELLS = 2**23  # attention weights or logits of all these rows
PROBE_PRODUCTS = 2**32  # multiplications of one forward pass over them: a second or two in float64
TOP1_CELLS = 2**24  # logits computed for a head's top-1: all tokens up to a vocabulary of 4,096
RANDOM_HEADS = 10  # writers, and as many readers, for the baseline of composition
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
    inputs = f"{plural(len(batch.inputs), 'held-out row')} of {task.name}"
    exact = copy.deepcopy(model).eval()
    if not all(bool(p.isfinite().all()) for p in exact.parameters()):
        heads = [HeadCircuits(layer, h, None, None, None, None) for layer, h in exact.heads]
        return Circuits(step, heads, [], None, inputs, ["The weights contain NaN or infinity: nothing was measured."])
    logits = exact(batch.inputs.to(exact.pos.device))  # in the model's own dtype
    notes: list[str] = []
    if logits.dtype.itemsize < 4:
        dtype = str(logits.dtype).removeprefix("torch.")
        notes.append(f"The model computes in {dtype}: the residual error is mostly rounding of its logits.")
    exact, logits = exact.cpu().double(), logits.cpu().double()
    shares = qk_shares(exact, batch.inputs, notes)
    ov = ov_circuits(exact, notes)
    direct, error = direct_parts(exact, batch, logits, notes)
    pairs = composed(exact, seed, notes)
    heads = []
    for head in exact.heads:
        top1, copying = ov.get(head, (None, None))
        heads.append(HeadCircuits(*head, shares.get(head), top1, copying, finite_or_none(direct.get(head))))
    return Circuits(step, heads, pairs, error, inputs, notes)


def qk_shares(model: TransformerLM, ids: Tensor, notes: list[str]) -> dict[Head, Mapping[str, float]]:
    """Attribute the variance of the first layer's scores to token, position and bias; a note says where it cannot."""
    first, attn = model.blocks[0], model.attention[0]
    if attn.kind != "softmax":
        notes.append(f"No QK shares: {attn.kind} attention has no scores of queries times keys.")
        return {}
    if not isinstance(first.attn_norm, nn.Identity):
        notes.append("No QK shares: after a norm the score is not a sum of token and position terms.")
        return {}
    if len(model.blocks) > 1:
        notes.append("QK shares are of layer 0 only: later layers do not read a plain sum of token and position.")
    if model.positions.overrides("rotate"):
        notes.append("RoPE rotates queries and keys by position: every QK share includes the distance.")
    shares = score_shares(model, ids)
    constant = ", ".join(str(Head(0, head)) for head, share in enumerate(shares) if share is None)
    if constant:
        notes.append(f"No QK shares for {constant}: the variance of the scores is zero or not finite.")
    return {Head(0, head): share for head, share in enumerate(shares) if share is not None}


def score_parts(model: TransformerLM, ids: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split the first layer's queries and keys (B, H, T, d) into the terms of token, position and bias."""
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
    queries, keys = {}, {}
    for name, (q, k) in parts.items():
        # A rotation is linear: the rotated parts sum to the rotated whole.
        q, k = model.positions.rotate(split_heads(q, attn.n_heads), split_heads(k, attn.n_kv_heads), pos)
        queries[name], keys[name] = q, share_heads(k, attn.n_heads)
    return queries, keys


def score_shares(model: TransformerLM, ids: Tensor) -> list[Mapping[str, float] | None]:
    """Compute each head of layer 0's Cov(S_ij, S) / Var(S) by query part i and key part j, on ids (B, T).

    Scores are centred over each query's visible keys. The shares of a head sum to 1; None where Var(S) is 0.
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
        visible = attn.causal_mask[part, :T]
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
        shares.append({name: float(value[h] / total[h]) for name, value in sums.items()} if known else None)
    return shares


def ov_circuits(model: TransformerLM, notes: list[str]) -> dict[Head, tuple[float | None, float | None]]:
    """Compute top-1 and copying of W_E W_V W_O W_U for every head between the embeddings and the logits."""
    block = model.blocks[0]
    layers = direct_layers(model)
    if not block.residual and layers != [0]:
        notes.append("No OV circuits: without residuals no head connects the embeddings directly to the logits.")
        return {}
    if not isinstance(block.attn_norm, nn.Identity):
        notes.append("OV circuits are computed from the weights and ignore norms.")
    W_E, W_U = model.tok_emb.weight, model.lm_head.weight.t()
    V = len(W_E)
    tokens = torch.arange(0, V, -(-V * V // TOP1_CELLS))
    if len(tokens) < V:
        notes.append(f"OV top-1 is over {len(tokens):,} evenly spaced tokens of {V:,}.")
    found = {}
    for layer in layers:
        attn = model.attention[layer]
        W_V = attn.qkv_proj.weight.split(attn.widths)[2].unflatten(0, (attn.n_kv_heads, attn.d_head))
        for h, W_O in enumerate(output_maps(attn)):
            read = W_E @ W_V[h // (attn.n_heads // attn.n_kv_heads)].t()  # (V, d)
            written = W_O @ W_U  # (d, V)
            found[Head(layer, h)] = (top1(read, written, tokens), copying(read, written))
    return found


def top1(read: Tensor, written: Tensor, tokens: Tensor) -> float | None:
    """Compute the fraction of tokens t for which row t of read @ written, (V, d) @ (d, V), has its one maximum at t.

    Source: ARENA (its copying score).
    """
    right = 0
    for chunk in tokens.split(max(1, BLOCK_CELLS // len(read))):
        rows = read[chunk] @ written
        if not bool(rows.isfinite().all()):
            return None
        own = rows.gather(1, chunk.unsqueeze(1))
        right += int((own > rows.scatter(1, chunk.unsqueeze(1), -math.inf).amax(1, keepdim=True)).sum())
    return right / len(tokens)


def copying(read: Tensor, written: Tensor) -> float | None:
    """Compute Re(sum lambda) / sum |lambda| over the eigenvalues of read @ written, (V, d) @ (d, V).

    None where all are zero. Source: Elhage et al. 2021.
    """
    small = written @ read  # (d, d), with the nonzero eigenvalues of the (V, V) matrix
    if not bool(small.isfinite().all()):
        return None
    values = torch.linalg.eigvals(small)
    size = values.abs().sum()
    return float(values.real.sum() / size) if size > NOISE * read.norm() * written.norm() else None


def direct_parts(
    model: TransformerLM, batch: Batch, logits: Tensor, notes: list[str]
) -> tuple[dict[Head, float], float | None]:
    """Compute direct logits and the residual error, with notes on what they omit."""
    figures, error = direct_logits(model, batch, logits)
    layers = direct_layers(model)
    if not layers:
        notes.append("No direct logits: head outputs reach the logits only through the MLP.")
    elif len(layers) < len(model.blocks):
        notes.append("Direct logits are of the last layer only: earlier layers are not added to the logits.")
    if layers and not isinstance(model.final_norm, nn.Identity):
        notes.append("Direct logits hold the final norm at its measured scale.")
    if layers and not bool((batch.targets != IGNORE).any()):
        notes.append("No direct logits: these rows have no scored token.")
    if finite_or_none(error) is None and layers:
        notes.append("The logits are not finite: the residual error is unknown.")
    return figures, finite_or_none(error)


class LowRank(NamedTuple):
    """n matrices left @ right^T (D, D), stored as factors (n, D, d); no D x D matrix is computed."""

    left: Tensor
    right: Tensor

    @property
    def t(self) -> LowRank:
        """The transposed matrices."""
        return LowRank(self.right, self.left)

    def compressed(self) -> Tensor:
        """Compute (n, D, d) matrices X such that |X^T Y| = |left @ right^T @ Y| for every Y: QR drops a rotation."""
        return self.right @ torch.linalg.qr(self.left)[1].transpose(-2, -1)


def overlap(writers: LowRank, readers: LowRank) -> Tensor:
    """Compute |A B| / (|A| |B|) for every writer A and reader B, Frobenius norms: (n_writers, n_readers).

    The row convention is x A B. NaN where a matrix is zero. Source: Elhage et al. 2021.
    """
    X, Y = writers.compressed(), readers.t.compressed()
    both = X.transpose(-2, -1).unsqueeze(1) @ Y  # (n, m, d, d)
    return both.norm(dim=(-2, -1)) / (X.norm(dim=(-2, -1)).unsqueeze(1) * Y.norm(dim=(-2, -1)))


def random_overlap(d_model: int, d_head: int, generator: Generator) -> float:
    """Average the overlap of random heads of the same shape with normally distributed weights."""
    draws = torch.randn(4, RANDOM_HEADS, d_model, d_head, dtype=torch.float64, generator=generator)
    return float(overlap(LowRank(draws[0], draws[1]), LowRank(draws[2], draws[3])).mean())


def factors(attn: MultiHeadSelfAttention) -> tuple[LowRank, LowRank]:
    """Return a layer's W_Q W_K^T and W_V W_O, one of each per query head; the score is x_q W_Q W_K^T x_k^T."""
    W_Q, W_K, W_V = (w.unflatten(0, (-1, attn.d_head)) for w in attn.qkv_proj.weight.split(attn.widths))
    shared = attn.n_heads // attn.n_kv_heads
    W_K, W_V = W_K.repeat_interleave(shared, 0), W_V.repeat_interleave(shared, 0)  # (H, d, D)
    columns = [w.transpose(-2, -1) for w in (W_Q, W_K, W_V, output_maps(attn))]  # (H, D, d)
    return LowRank(columns[0], columns[1]), LowRank(columns[2], columns[3])


def n_pairs(model: TransformerLM) -> int:
    """Count the pairs of an earlier and a later head."""
    layers = len(model.attention)
    return layers * (layers - 1) // 2 * model.attention[0].n_heads ** 2


@torch.no_grad()
def compositions(model: TransformerLM, seed: int) -> Iterator[Composition]:
    """Compute the Q-, K- and V-composition of every pair of heads, minus the mean of random heads.

    Q and K are NaN where attention is no softmax of their product. Pairs with a zero matrix are omitted.
    """
    attn = model.attention[0]
    baseline = random_overlap(attn.d_model, attn.d_head, stream_generator(seed, "composition", 0))
    layers = [factors(attn) for attn in model.attention]
    for late, reader in enumerate(model.attention):
        qk, ov = layers[late]
        for early in range(late):
            written = layers[early][1]
            found = torch.stack([overlap(written, read) for read in (qk, qk.t, ov)]) - baseline  # (3, H, H)
            if reader.kind != "softmax":
                found[:2] = math.nan
            for w, per_reader in enumerate(found.permute(1, 2, 0).tolist()):
                for r, (queries, keys, values) in enumerate(per_reader):
                    if math.isfinite(values) and (reader.kind != "softmax" or math.isfinite(queries + keys)):
                        yield Composition(Head(early, w), Head(late, r), queries, keys, values)


def composed(model: TransformerLM, seed: int, notes: list[str]) -> list[Composition]:
    """Compute the composition of all pairs of heads on one residual stream, with notes on what it omits."""
    block = model.blocks[0]
    pairs = n_pairs(model)
    if not pairs:
        return []
    if not block.residual:
        notes.append("No composition: without a residual stream later heads do not read single heads' outputs.")
        return []
    if pairs > MAX_PAIRS:
        notes.append(f"No composition: {pairs:,} pairs of heads exceed the limit of {MAX_PAIRS:,}.")
        return []
    kind = model.attention[0].kind
    omitted = [] if isinstance(block.attn_norm, nn.Identity) else ["norms"]
    omitted += ["RoPE"] if model.positions.overrides("rotate") and kind == "softmax" else []
    omitted += ["MLPs"] if block.mlp is not None else []
    if omitted:
        notes.append(f"Composition is computed from the weights and ignores: {', '.join(omitted)}.")
    if kind != "softmax":
        notes.append(f"V-composition only: {kind} attention has no scores of queries times keys.")
    found = list(compositions(model, seed))
    if len(found) < pairs:
        notes.append(f"{pairs - len(found):,} of {pairs:,} pairs of heads have no composition: a matrix is zero.")
    return found
