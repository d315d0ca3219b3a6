"""What a head's weights do: which parts of its input its score compares, what it copies, what it adds to the logits.

The vocabulary is that of Elhage et al. 2021. Everything is computed on a copy of the model in float64, so that rounding
is never taken for a finding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhsa_cli.core.heads.capture import BLOCK_CELLS, figure
from mhsa_cli.core.heads.composition import MAX_PAIRS, compositions, n_pairs
from mhsa_cli.core.heads.logit_attribution import direct_layers, direct_logits, per_head
from mhsa_cli.core.model.attention import attention_scores, share_heads, split_heads
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import IGNORE, Batch
from mhsa_cli.records.heads import Circuits, Composition, HeadCircuits
from mhsa_cli.text import Head, plural

PROBE = 64  # rows that are looked at, fewer where they are long
PROBE_CELLS = 2**23  # weights or logits of all these rows
PROBE_PRODUCTS = 2**32  # multiplications of one forward pass over them, a second or two in float64
TOP1_CELLS = 2**24  # logits computed for a head's top-1: every token up to a vocabulary of 4,096
NOISE = 1e-8  # beside its factors, a number smaller than that is below what float32 can tell from zero


@torch.no_grad()
def circuits(model: TransformerLM, task: Task, seed: int, step: int) -> Circuits:
    """Read every head's circuits off a model's weights and measure them on probe rows; the model is left as it is.

    What is not defined for this model is None, and a note says why.
    """
    batch = probe_rows(model, task, seed)
    n, T = batch.inputs.shape
    inputs = f"{plural(n, 'row')} of {task.name} from a stream that training never reads"
    exact = copy.deepcopy(model).eval()
    addresses = exact.heads
    if not all(bool(p.isfinite().all()) for p in exact.parameters()):
        heads = [HeadCircuits(layer, h, None, None, None, None) for layer, h in addresses]
        return Circuits(step, heads, [], None, inputs, ["The weights hold NaN or infinity: nothing was measured."])
    logits = exact(batch.inputs.to(exact.pos.device))  # as the model itself computes them
    notes: list[str] = []
    if logits.dtype.itemsize < 4:
        rounded = str(logits.dtype).removeprefix("torch.")
        notes.append(f"The model computes in {rounded}: the residual error is mostly the rounding of its logits.")
    exact, logits = exact.cpu().double(), logits.cpu().double()
    shares = qk_shares(exact, batch.inputs, notes)
    ov = ov_circuits(exact, notes)
    direct, error = direct_parts(exact, batch, logits, notes)
    pairs = composed(exact, seed, notes)
    heads = []
    for at in addresses:
        top1, copying = ov.get(at, (None, None))
        heads.append(HeadCircuits(*at, shares.get(at), top1, copying, figure(direct.get(at))))
    return Circuits(step, heads, pairs, error, inputs, notes)


def probe_rows(model: TransformerLM, task: Task, seed: int) -> Batch:
    """Draw the probe rows, as many as fit into PROBE_CELLS and PROBE_PRODUCTS, at least one."""
    cells = max(model.attention[0].n_heads * task.seq_len, task.vocab_size) * task.seq_len
    products = sum(p.numel() for p in model.parameters()) * task.seq_len
    batch = fixed_batch(task, seed, "probe", PROBE)
    rows = max(1, min(PROBE_CELLS // cells, PROBE_PRODUCTS // products))
    return Batch(batch.inputs[:rows], batch.targets[:rows])


def qk_shares(model: TransformerLM, ids: Tensor, notes: list[str]) -> dict[Head, Mapping[str, float]]:
    """Share the variance of the first layer's scores among what they compare, or say in a note why not."""
    first, attn = model.blocks[0], model.attention[0]
    if attn.kind != "softmax":
        why = {"linear": "linear attention has no scores", "uniform": "uniform attention does not use its scores"}
        notes.append(f"No shares of position and token: {why[attn.kind]}.")
        return {}
    if not isinstance(first.attn_norm, nn.Identity):
        notes.append("No shares of position and token: behind a norm the score is not a sum of their terms.")
        return {}
    if len(model.blocks) > 1:
        notes.append("Shares of position and token are of layer 0 only: what later layers read is no longer their sum.")
    if model.positions.overrides("rotate"):
        notes.append("Rope turns queries and keys by position: distance acts within every share.")
    shares = score_shares(model, ids)
    flat = ", ".join(str(Head(0, head)) for head, share in enumerate(shares) if share is None)
    if flat:
        notes.append(f"No shares of position and token for {flat}: the variance of the score is zero or not finite.")
    return {Head(0, head): share for head, share in enumerate(shares) if share is not None}


def score_parts(model: TransformerLM, ids: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split the first layer's queries and keys (B, H, T, d) into what the token, the position and the bias give."""
    attn, pos = model.attention[0], model.pos[: ids.size(1)]
    tok = model.tok_emb(ids)
    streams = {"tok": tok}
    if model.positions.overrides("embed"):
        streams["pos"] = model.positions.embed(torch.zeros_like(tok), pos)
    W_Q, W_K, _ = attn.qkv_proj.weight.split(attn.widths)
    made = {name: (F.linear(x, W_Q), F.linear(x, W_K)) for name, x in streams.items()}
    if attn.qkv_proj.bias is not None:
        b_Q, b_K, _ = attn.qkv_proj.bias.split(attn.widths)
        made["bias"] = (b_Q.expand(*ids.shape, -1), b_K.expand(*ids.shape, -1))
    queries, keys = {}, {}
    for name, (q, k) in made.items():
        # A rotation is linear: turning the parts is turning the sum.
        q, k = model.positions.rotate(split_heads(q, attn.n_heads), split_heads(k, attn.n_kv_heads), pos)
        queries[name], keys[name] = q, share_heads(k, attn.n_heads)
    return queries, keys


def score_shares(model: TransformerLM, ids: Tensor) -> list[Mapping[str, float] | None]:
    """Give each head of layer 0 Cov(S_ij, S) / Var(S) by query part i and key part j, on ids (B, T).

    Scores are centred over the keys that a query sees. The shares of a head sum to 1; None where Var(S) is 0.
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
        seen = attn.causal_mask[part, :T]
        offset = None if bias is None else bias[..., part, :]
        scores = attention_scores(q[..., part, :], k, offset)  # (B, H, rows, T)
        mean = (scores * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
        centred = (scores - mean) * seen
        total += centred.square().sum((0, 2, 3))
        # Against a centred score the other one need not be centred: sum_k C S_ij = q_i (C k_j).
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
    """Measure top-1 and copying of W_E W_V W_O W_U for every head that reads embeddings and writes logits directly."""
    block = model.blocks[0]
    layers = direct_layers(model)
    if not block.residual and layers != [0]:
        notes.append("No copying: without residuals no head here leads straight from embeddings to logits.")
        return {}
    if not isinstance(block.attn_norm, nn.Identity):
        notes.append("Copying is read from the weights and leaves the norms out.")
    W_E, W_U = model.tok_emb.weight, model.lm_head.weight.t()
    V = len(W_E)
    tokens = torch.arange(0, V, -(-V * V // TOP1_CELLS))
    if len(tokens) < V:
        notes.append(f"Copying of tokens (top-1) is of {len(tokens):,} evenly spaced tokens out of {V:,}.")
    found = {}
    for layer in layers:
        attn = model.attention[layer]
        W_V = attn.qkv_proj.weight.split(attn.widths)[2].unflatten(0, (attn.n_kv_heads, attn.d_head))
        for h, W_O in enumerate(per_head(attn)):
            read = W_E @ W_V[h // (attn.n_heads // attn.n_kv_heads)].t()  # (V, d)
            written = W_O @ W_U  # (d, V)
            found[Head(layer, h)] = (top1(read, written, tokens), copying(read, written))
    return found


def top1(read: Tensor, written: Tensor, tokens: Tensor) -> float | None:
    """Give the fraction of tokens t for which row t of read @ written, (V, d) @ (d, V), is largest at t alone.

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
    """Give Re(sum lambda) / sum |lambda| over the eigenvalues of read @ written, by way of the small written @ read.

    None where they are all zero. Source: Elhage et al. 2021.
    """
    small = written @ read  # (d, d): its eigenvalues are the (V, V) matrix's nonzero ones
    if not bool(small.isfinite().all()):
        return None
    values = torch.linalg.eigvals(small)
    size = values.abs().sum()
    return float(values.real.sum() / size) if size > NOISE * read.norm() * written.norm() else None


def direct_parts(
    model: TransformerLM, batch: Batch, logits: Tensor, notes: list[str]
) -> tuple[dict[Head, float], float | None]:
    """Measure direct logits and the residual error, and say what they leave out."""
    figures, error = direct_logits(model, batch, logits)
    layers = direct_layers(model)
    if not layers:
        notes.append("No direct logits: what heads write reaches the logits only through the MLP.")
    elif len(layers) < len(model.blocks):
        notes.append("Direct logits are of the last layer only: earlier layers are not added to the logits.")
    if layers and not isinstance(model.final_norm, nn.Identity):
        notes.append("Direct logits hold the final norm's measured scale fixed.")
    if layers and not bool((batch.targets != IGNORE).any()):
        notes.append("No direct logits: none of these rows has an answer.")
    if figure(error) is None and layers:
        notes.append("The model's logits are not finite: how well the direct parts add up to them is unknown.")
    return figures, figure(error)


def composed(model: TransformerLM, seed: int, notes: list[str]) -> list[Composition]:
    """Measure the composition of all pairs of heads that share a residual stream, and say what it leaves out."""
    block = model.blocks[0]
    pairs = n_pairs(model)
    if not pairs:
        return []
    if not block.residual:
        notes.append("No composition: without a residual stream later heads do not read what single heads wrote.")
        return []
    if pairs > MAX_PAIRS:
        notes.append(f"No composition: {pairs:,} pairs of heads are more than the {MAX_PAIRS:,} that are measured.")
        return []
    kind = model.attention[0].kind
    left_out = [] if isinstance(block.attn_norm, nn.Identity) else ["norms"]
    left_out += ["rope's turn"] if model.positions.overrides("rotate") and kind == "softmax" else []
    left_out += ["MLPs"] if block.mlp is not None else []
    if left_out:
        notes.append(f"Composition is read from the weights and leaves out: {', '.join(left_out)}.")
    if kind != "softmax":
        notes.append(f"Composition is through values only: {kind} attention has no scores of queries times keys.")
    found = list(compositions(model, seed))
    if len(found) < pairs:
        notes.append(f"{pairs - len(found):,} of {pairs:,} pairs of heads have no composition: a matrix is zero.")
    return found
