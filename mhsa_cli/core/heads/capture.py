"""Read attention weights off a model without changing it: eval mode, before dropout, copies only."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.model.attention import share_heads
from mhsa_cli.core.model.custom import CustomLayer
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import HeadMaps, HeadSummary

PROBE, FEWEST = 64, 4  # rows over which a head's weight on the source is averaged: fewer where they are long
PROBE_WEIGHTS = 2**26  # weights computed for that
MAX_CELLS = 1_000_000  # cells kept of the shown maps; a longer sample is pooled
BLOCK_CELLS = 2**20  # weights held at once while they are only read through: few enough for a processor's cache
MAX_WEIGHTS = 2**31  # some backends miscompute beyond it, and nobody can look at more


@torch.no_grad()
def capture(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Compute every layer's attention weights on ids (B, T): one (B, H, T, T) tensor a layer, on the CPU.

    Raises: UsageError if the weights would be too many to hold.
    """
    n_heads, (B, T) = model.mixers[0].n_heads, ids.shape
    if B * n_heads * T * T > MAX_WEIGHTS:
        raise UsageError(f"{B} x {n_heads} x {T} x {T} weights are too many to look at", "use fewer or shorter rows")
    with eval_mode(model):
        _, weights = model(ids.to(next(model.parameters()).device), return_weights=True)
    return [readable(w) for w in weights]


@torch.no_grad()
def weight_blocks(model: TransformerLM, ids: Tensor, multiple: int = 1) -> Iterator[tuple[int, int, Tensor]]:
    """Read every layer's exact weights on ids (B, T) a few query rows at a time, so that a long T fits in memory.

    Yields (layer, first, weights): queries from number `first` on the keys up to the last of them, (B, H, rows, keys).
    The number of rows is a multiple of `multiple`, but for the last block.
    """
    ids = ids.to(next(model.parameters()).device)
    (B, T), H = ids.shape, model.mixers[0].n_heads
    rows = max(1, BLOCK_CELLS // (B * H * T) // multiple) * multiple
    with eval_mode(model):
        pos = model.pos[:T]
        x = model.embed(ids, pos)
        for layer, block in enumerate(model.blocks):
            attn = model.mixers[layer]
            if isinstance(attn, CustomLayer):  # it cannot be asked for a few queries only
                x, whole = block(x, pos, True)
                for first in range(0, T, rows):
                    end = min(first + rows, T)
                    yield layer, first, readable(whole[..., first:end, :end])
                continue
            q, k, _ = attn.project(block.attn_norm(x), pos)
            for first, _, part in attn.weights_by_rows(q, share_heads(k, H), pos, rows):
                yield layer, first, readable(part)
            if layer + 1 < len(model.blocks):  # nobody asks what comes out of the last one
                x, _ = block(x, pos)


def readable(weights: Tensor) -> Tensor:
    """Bring weights to the CPU, in the type they were computed in but for half precision, which becomes float32."""
    return weights.detach().to(torch.promote_types(weights.dtype, torch.float32)).cpu()


def row_entropy(weights: Tensor, first: int = 0) -> Tensor:
    """Give each query's entropy over ln(q+1), so that 1 is uniform: (..., rows, keys) to (..., rows).

    `first` is the first query's number. Query 0 has one key and no entropy: NaN. Never divided by ln T: an early query
    cannot spread over keys that it may not see.
    """
    entropy = -torch.xlogy(weights, weights).sum(-1)  # nats
    return entropy / torch.log(torch.arange(first + 1, first + 1 + weights.size(-2), dtype=weights.dtype))


def source_mass(weights: Tensor, source: Tensor) -> Tensor:
    """Add up each head's weight on the source positions: (B, H, rows, keys) and (B, rows) with -1 for none, to (H,)."""
    index = source.clamp(min=0)[:, None, :, None].expand(*weights.shape[:3], 1)
    mass = weights.gather(-1, index).squeeze(-1)  # (B, H, rows)
    return (mass * (source >= 0).unsqueeze(1)).sum((0, 2))


def shown_maps(model: TransformerLM, sample: Tensor) -> tuple[list[Tensor], list[Tensor], int]:
    """Read the maps of one sample (T,): per layer the weights (H, t, t) and every head's entropy (H,), and the pooling.

    A sample with more than MAX_CELLS weights is pooled: one cell is the largest of pool x pool weights.
    """
    T, n_maps, pool = len(sample), len(model.heads), 1
    while n_maps * math.ceil(T / pool) ** 2 > MAX_CELLS:
        pool *= 2
    t = math.ceil(T / pool)
    dtype = next(model.parameters()).dtype
    maps = [torch.zeros(block.n_heads, t, t, dtype=dtype) for block in model.mixers]
    entropy = [torch.zeros(block.n_heads, dtype=dtype) for block in model.mixers]
    for layer, first, block in weight_blocks(model, sample.unsqueeze(0), pool):
        pooled = block[0] if pool == 1 else F.max_pool2d(block[0], pool, ceil_mode=True)
        maps[layer][:, first // pool : first // pool + pooled.size(-2), : pooled.size(-1)] = pooled
        rows = row_entropy(block[0], first)
        entropy[layer] += (rows[:, 1:] if first == 0 else rows).sum(-1)  # query 0 has no entropy; NaN elsewhere stays
    return maps, [e / max(T - 1, 1) for e in entropy], pool


def answer_weights(model: TransformerLM, task: Task, rows: Tensor) -> tuple[list[Tensor], float] | None:
    """Average each head's weight on the source over rows (N, T), per layer (H,), and a uniform head's.

    Returns None for a task without a source.
    """
    source = task.source(rows)
    if source is None or not bool((source >= 0).any()):
        return None
    mass = [torch.zeros(block.n_heads, dtype=next(model.parameters()).dtype) for block in model.mixers]
    for layer, first, block in weight_blocks(model, rows):
        mass[layer] += source_mass(block, source[:, first : first + block.size(-2)])
    seen = torch.arange(1, rows.size(1) + 1).expand_as(rows)[source >= 0]  # keys that each such query sees
    return [m / len(seen) for m in mass], float((1 / seen).mean())


def head_maps(model: TransformerLM, task: Task, seed: int, step: int, tokens: Tensor | None = None) -> HeadMaps:
    """Capture every head on one sample: the first probe row, or `tokens` (T,), with each head's figures.

    Entropy is that of the shown sample; the source weight is averaged over probe rows that training never drew, and
    left out beside `tokens`: it says nothing about them.
    """
    size = len(model.heads) * task.seq_len**2
    rows = fixed_batch(task, seed, "probe", PROBE).inputs[: max(FEWEST, PROBE_WEIGHTS // size)]
    sample = rows[0] if tokens is None else tokens
    maps, entropy, pool = shown_maps(model, sample)
    found = answer_weights(model, task, rows) if tokens is None else None
    heads = []
    for layer, weights in enumerate(maps):
        for head in range(len(weights)):
            own = None if len(sample) < 2 else figure(entropy[layer][head])
            on_source = None if found is None else figure(found[0][layer][head])
            heads.append(HeadSummary(layer, head, own, on_source, None if found is None else found[1]))
    nested = [[[[round(p, 7) for p in row] for row in head] for head in w.tolist()] for w in maps]
    labels, note = task.symbols(sample.tolist()), task.note
    if pool > 1:
        labels = [str(i) for i in range(0, len(sample), pool)]
        said = (
            f"One cell is the largest of {pool} x {pool} weights, and the axes count positions: {len(sample)} tokens."
        )
        note = f"{note} {said}".strip()
    return HeadMaps(step, task.name, labels, nested, heads, note)


def figure(value: Tensor | float | None) -> float | None:
    """Give a finite figure, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


def read_tokens(text: str, task: Task, max_seq_len: int, option: str = "--tokens") -> Tensor:
    """Read ids from text, in the task's own symbols or as numbers: "3 5 9", or the characters of a text task.

    Returns: (T,) int64. Raises: UsageError naming what is not an id, or too long.
    """
    known = {symbol: i for i, symbol in enumerate(task.symbols(range(task.vocab_size)))}
    words = text.replace(",", " ").split() if task.space else list(text)
    if not task.space:  # as they stand in the text, too
        known |= {task.write(i): i for i in range(task.vocab_size)}
    if not words:
        raise UsageError(f"{option} is empty", "give at least one id")
    if len(words) > max_seq_len:
        raise UsageError(f"{option}: {len(words)} tokens exceed max_seq_len={max_seq_len}")
    ids = []
    for place, word in enumerate(words, 1):
        number = known.get(word)
        if number is None and task.space and word.isascii() and word.isdigit() and len(word) < 10:
            number = int(word)
        if number is None or not 0 <= number < task.vocab_size:
            if not task.space:
                raise UsageError(f"{option}: {word!r} is not a character of the text that was trained on")
            wanted = f"ids: 0 to {task.vocab_size - 1}"
            raise UsageError(f"{option}: {word!r} (token {place} of {len(words)}) is not an id of this task", wanted)
        ids.append(number)
    return torch.tensor(ids)
