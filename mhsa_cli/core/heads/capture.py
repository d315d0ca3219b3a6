"""Activations of heads in eval mode, before dropout: weights A_h, values V_h, and outputs z_h before out_proj.

Returned tensors share no memory with the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.model.attention import merge_heads, share_heads
from mhsa_cli.core.model.custom import CustomLayer
from mhsa_cli.core.model.transformer import Block, TransformerLM, eval_mode
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import HeadMaps, HeadSummary

PROBE_ROWS, MIN_ROWS = 64, 4  # rows that the answer weight is averaged over; fewer where rows are long
PROBE_WEIGHTS = 2**26  # attention weights computed for that average
MAX_CELLS = 1_000_000  # cells of the stored maps; a longer sample is pooled
BLOCK_CELLS = 2**20  # weights of one block of query rows, few enough for a CPU cache
ROW_CELLS = 2**14  # weights of one head on one row that are summed together
MAX_WEIGHTS = 2**31  # above this some backends compute wrong results


class Activations(NamedTuple):
    """Activations of a forward pass: logits (..., T, V), and per layer weights (..., H, T, T), values and head outputs.

    Values and outputs are (..., H, T, d).
    """

    logits: Tensor
    weights: list[Tensor]
    values: list[Tensor]
    outputs: list[Tensor]


@torch.no_grad()
def run_with_activations(model: TransformerLM, ids: Tensor) -> Activations:
    """Run ids (B, T), or (M, B, T) in a stack; the logits equal the model's own to rounding."""
    weights, values, outputs = [], [], []
    with eval_mode(model):
        pos = model.pos[: ids.size(-1)]
        x = model.embed(ids.to(pos.device), pos)
        for block in model.blocks:
            A, v = attend(block, x, pos)
            z = A.to(v.dtype) @ v  # (..., H, T, d)
            weights.append(A)
            values.append(v)
            outputs.append(z)
            x = after_heads(block, x, z)
        return Activations(model.lm_head(model.final_norm(x)), weights, values, outputs)


@torch.no_grad()
def head_weights(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Compute the attention weights (..., H, T, T) of every layer on ids (..., T) in eval mode, before dropout."""
    return _forward(model, ids, with_logits=False)[0]


@torch.no_grad()
def weights_and_logits(model: TransformerLM, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """Compute what `head_weights` does, and the logits (..., T, V)."""
    weights, x = _forward(model, ids, with_logits=True)
    return weights, model.lm_head(model.final_norm(x))


def _forward(model: TransformerLM, ids: Tensor, with_logits: bool) -> tuple[list[Tensor], Tensor]:
    """Compute every layer's attention weights, and the last layer's output if the logits need it."""
    weights = []
    with eval_mode(model):
        pos = model.pos[: ids.size(-1)]
        x = model.embed(ids.to(pos.device), pos)
        for layer, block in enumerate(model.blocks):
            if isinstance(block.attn, CustomLayer):
                x, A = block(x, pos, True)
                weights.append(A)
                continue
            A, v = attend(block, x, pos)
            weights.append(A)
            if with_logits or layer + 1 < len(model.blocks):
                x = after_heads(block, x, A.to(v.dtype) @ v)
    return weights, x


def attend(block: Block, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a block's weights A (..., H, T, T) and values V (..., H, T, d) on its input x (..., T, D)."""
    attn = block.inner
    q, k, v = attn.project(block.attn_norm(x), pos)
    k, v, T = share_heads(k, attn.n_heads), share_heads(v, attn.n_heads), x.size(-2)
    rows = block_rows(T)
    if rows == T:
        return attn.weights(q, k, None, pos), v
    weights: Tensor | None = None  # in blocks: whole maps of long rows would not stay in the processor's cache
    for first, end, part in attn.weights_by_rows(q, k, pos, rows):
        weights = part.new_zeros(*q.shape[:-1], T) if weights is None else weights
        weights[..., first:end, : part.size(-1)] = part
    assert weights is not None
    return weights, v


def after_heads(block: Block, x: Tensor, z: Tensor) -> Tensor:
    """Compute the rest of a block from its input x and its head outputs z (..., H, T, d): (..., T, D)."""
    return block.after_attention(x, block.inner.out_proj(merge_heads(z)))


def capture(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Compute every layer's attention weights on ids (B, T): one (B, H, T, T) tensor per layer, on the CPU.

    Raises: UsageError if there are too many weights to hold.
    """
    n_heads, (B, T) = model.mixers[0].n_heads, ids.shape
    if B * n_heads * T * T > MAX_WEIGHTS:
        size = f"{B} x {n_heads} x {T} x {T}"
        raise UsageError(f"{size} attention weights exceed the limit of {MAX_WEIGHTS:,}", "use fewer or shorter rows")
    return [to_cpu(w) for w in head_weights(model, ids)]


@torch.no_grad()
def weight_blocks(model: TransformerLM, ids: Tensor, multiple: int = 1) -> Iterator[tuple[int, int, Tensor]]:
    """Yield every layer's exact weights on ids (..., T) in blocks of query rows, so that a long T fits in memory.

    Yields (layer, first, weights): queries from index `first` on, weights (..., H, rows, keys) on the first keys, all
    that these queries may see. The number of rows is a multiple of `multiple`, except in the last block.
    """
    ids = ids.to(next(model.parameters()).device)
    T, H = ids.size(-1), model.mixers[0].n_heads
    rows = max(1, BLOCK_CELLS // (ids.numel() * H) // multiple) * multiple
    with eval_mode(model):
        pos = model.pos[:T]
        x = model.embed(ids, pos)
        for layer, block in enumerate(model.blocks):
            attn = block.attn
            if isinstance(attn, CustomLayer):  # always computes all queries
                x, weights = block(x, pos, True)
                for first in range(0, T, rows):
                    end = min(first + rows, T)
                    yield layer, first, to_cpu(weights[..., first:end, :end])
                continue
            q, k, _ = attn.project(block.attn_norm(x), pos)
            for first, _, part in attn.weights_by_rows(q, share_heads(k, H), pos, rows):
                yield layer, first, to_cpu(part)
            if layer + 1 < len(model.blocks):  # the last layer's output is not needed
                x, _ = block(x, pos)


def block_rows(T: int) -> int:  # noqa: N803
    """Choose the number of queries in a block of rows of T tokens, few enough for a CPU cache."""
    return max(1, min(T, ROW_CELLS // T))


def to_cpu(weights: Tensor) -> Tensor:
    """Copy weights to the CPU; half precision becomes float32, other dtypes stay."""
    return weights.detach().to(torch.promote_types(weights.dtype, torch.float32)).cpu()


def row_entropy(weights: Tensor, n_keys: Tensor) -> Tensor:
    """Compute each query's entropy over ln of its visible keys, so that 1 is uniform: (..., rows, keys) to (..., rows).

    `n_keys` (rows,) is their number, in a causal model q + 1. NaN for a query with one key. The divisor is not ln T: an
    early query attends to fewer keys.
    """
    entropy = -torch.xlogy(weights, weights).sum(-1)  # nats
    return entropy / n_keys.to(weights.dtype).log()


def answer_mass(weights: Tensor, answer: Tensor) -> Tensor:
    """Sum each head's weight on the keys that hold the answer: (B, H, rows, keys) and (B, rows, keys) to (H,)."""
    return weights.masked_fill(~answer.unsqueeze(1), 0.0).sum((0, 2, 3))


def sample_maps(model: TransformerLM, sample: Tensor) -> tuple[list[Tensor], list[Tensor], int]:
    """Compute the maps of one sample (T,): per layer the weights (H, t, t) and mean entropy (H,), and the pool size.

    A sample with more than MAX_CELLS weights is max-pooled over blocks of pool x pool weights.
    """
    T, n_maps, pool = len(sample), len(model.heads), 1
    while n_maps * math.ceil(T / pool) ** 2 > MAX_CELLS:
        pool *= 2
    t = math.ceil(T / pool)
    dtype = next(model.parameters()).dtype
    maps = [torch.zeros(attn.n_heads, t, t, dtype=dtype) for attn in model.mixers]
    entropy = [torch.zeros(attn.n_heads, dtype=dtype) for attn in model.mixers]
    n_keys = [attn.visible[:T, :T].sum(-1).cpu() for attn in model.mixers]  # of each query
    for layer, first, block in weight_blocks(model, sample.unsqueeze(0), pool):
        pooled = block[0] if pool == 1 else F.max_pool2d(block[0], pool, ceil_mode=True)
        maps[layer][:, first // pool : first // pool + pooled.size(-2), : pooled.size(-1)] = pooled
        seen = n_keys[layer][first : first + block.size(-2)]
        entropy[layer] += row_entropy(block[0], seen)[:, seen > 1].sum(-1)  # of those with a choice; any NaN is kept
    return maps, [e / (n > 1).sum() for e, n in zip(entropy, n_keys, strict=True)], pool


def answer_weights(model: TransformerLM, task: Task, rows: Tensor) -> list[tuple[Tensor, float] | None] | None:
    """Average the weight on keys that hold the answer over rows (N, T): by layer each head's (H,), a uniform head's.

    Returns None for a task whose answer no key holds, and for a layer that does not see it.
    """
    T, layers = rows.size(1), range(len(model.mixers))
    mass = [torch.zeros(attn.n_heads, dtype=next(model.parameters()).dtype) for attn in model.mixers]
    visible = [attn.visible[:T, :T].cpu() for attn in model.mixers]
    uniform, count = [0.0] * len(layers), [0] * len(layers)
    for part in rows.split(max(1, MAX_CELLS // rows.size(1) ** 2)):  # a few rows at once: their keys are (rows, T, T)
        answer = task.source(part)
        if answer is None:
            return None
        for layer, first, block in weight_blocks(model, part):
            end = first + block.size(-2)
            mass[layer] += answer_mass(block, answer[:, first:end, : block.size(-1)])
        for layer in layers if model.source else layers[:1]:
            seen = answer & visible[layer]
            uniform[layer] += float((seen.sum(-1) / visible[layer].sum(-1).clamp(min=1)).sum())
            count[layer] += int(seen.any(-1).sum())
    if not model.source:  # all layers see the same keys
        uniform, count = uniform[:1] * len(layers), count[:1] * len(layers)
    found = zip(mass, uniform, count, strict=True)
    return [(m / n, u / n) if n else None for m, u, n in found] if any(count) else None


def head_maps(model: TransformerLM, task: Task, seed: int, step: int, tokens: Tensor | None = None) -> HeadMaps:
    """Capture every head on one sample: the first held-out row, or `tokens` (T,).

    Entropy is the sample's; the answer weight is averaged over held-out rows and omitted if `tokens` are given.
    """
    size = len(model.heads) * task.seq_len**2
    rows = fixed_batch(task, seed, "probe", PROBE_ROWS).inputs[: max(MIN_ROWS, PROBE_WEIGHTS // size)]
    sample = rows[0] if tokens is None else tokens
    maps, entropy, pool = sample_maps(model, sample)
    answer = answer_weights(model, task, rows) if tokens is None else None
    heads = []
    for layer, head in model.heads:
        spread = None if len(sample) < 2 else finite_or_none(entropy[layer][head])
        own = None if answer is None else answer[layer]
        weight, uniform = (None, None) if own is None else (finite_or_none(own[0][head]), own[1])
        heads.append(HeadSummary(layer, head, spread, weight, uniform))
    nested = [[[[round(p, 7) for p in row] for row in head] for head in w.tolist()] for w in maps]
    labels, note = task.symbols(sample.tolist()), task.note
    if pool > 1:
        labels = [str(i) for i in range(0, len(sample), pool)]
        pooling = f"Each cell is the maximum of {pool} x {pool} weights; axes count the {len(sample)} positions."
        note = f"{note} {pooling}".strip()
    parts = model.parts if pool == 1 and len(sample) == model.max_seq_len else []
    return HeadMaps(step, task.name, labels, nested, heads, note, parts=parts)


def finite_or_none(value: Tensor | float | None) -> float | None:
    """Convert a finite figure to float, anything else to None."""
    return float(value) if value is not None and math.isfinite(value) else None


def read_tokens(text: str, task: Task, max_seq_len: int, option: str = "--tokens") -> Tensor:
    """Parse token ids (T,) int64 from the task's symbols or numbers ("3 5 9"), or a text task's characters.

    Raises: UsageError naming the first invalid token, or the length if there are too many.
    """
    known = {symbol: i for i, symbol in enumerate(task.symbols(range(task.vocab_size)))}
    words = text.replace(",", " ").split() if task.space else list(text)
    if not task.space:  # raw characters as well as their shown symbols
        known |= {task.write(i): i for i in range(task.vocab_size)}
    if not words:
        raise UsageError(f"{option} is empty", "give at least one token")
    if len(words) > max_seq_len:
        raise UsageError(f"{option}: {len(words)} tokens exceed max_seq_len={max_seq_len}")
    ids = []
    for place, word in enumerate(words, 1):
        number = known.get(word)
        if number is None and task.space and word.isascii() and word.isdigit() and len(word) < 10:
            number = int(word)
        if number is None or not 0 <= number < task.vocab_size:
            if not task.space:
                raise UsageError(f"{option}: {word!r} is not a character of the training text")
            where = f"{word!r} (token {place} of {len(words)})"
            raise UsageError(f"{option}: {where} is not an id of this task", f"ids: 0 to {task.vocab_size - 1}")
        ids.append(number)
    return torch.tensor(ids)
