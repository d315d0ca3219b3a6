"""Read attention weights off a model without changing it: eval mode, before dropout, copies only."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.errors import UsageError
from mhsa_cli.records import HeadMaps, HeadSummary

PROBE = 64  # rows over which a head's weight on the source position is averaged
MAX_CELLS = 1_000_000  # weights kept of the shown sample; a causal map's first rows do not depend on the rest
MAX_WEIGHTS = 2**31  # some backends miscompute beyond it, and nobody can look at more


@torch.no_grad()
def capture(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Compute every layer's attention weights on ids (B, T): one (B, H, T, T) tensor a layer, on the CPU.

    Raises: UsageError if the weights would be too many to hold.
    """
    n_heads, (B, T) = model.attention[0].n_heads, ids.shape
    if B * n_heads * T * T > MAX_WEIGHTS:
        raise UsageError(f"{B} x {n_heads} x {T} x {T} weights are too many to look at", "use fewer or shorter rows")
    was_training = model.training
    model.eval()
    try:
        _, weights = model(ids.to(next(model.parameters()).device), return_weights=True)
    finally:
        model.train(was_training)
    return [w.detach().float().cpu() for w in weights]


def row_entropy(weights: Tensor) -> Tensor:
    """Give each query's entropy over ln(q+1), so that 1 is uniform: (..., T, T) to (..., T-1), queries from 1.

    Never divided by ln T: an early query cannot spread over keys that it may not see.
    """
    entropy = -torch.xlogy(weights, weights).sum(-1)  # nats
    return entropy[..., 1:] / torch.log(torch.arange(2, weights.size(-2) + 1))


def source_weight(weights: Tensor, source: Tensor) -> Tensor:
    """Average each head's weight on the source positions: (B, H, T, T) and (B, T) with -1 for none, to (H,)."""
    B, H, T, _ = weights.shape
    index = source.clamp(min=0).view(B, 1, T, 1).expand(B, H, T, 1)
    mass = weights.gather(-1, index).squeeze(-1)  # (B, H, T)
    has = (source >= 0).unsqueeze(1)
    return (mass * has).sum((0, 2)) / has.sum()


def head_maps(model: TransformerLM, task: Task, seed: int, step: int, tokens: Tensor | None = None) -> HeadMaps:
    """Capture every head on one sample: the first probe row, or `tokens` (T,), with each head's figures.

    Entropy is that of the shown sample; the source weight is averaged over PROBE rows that training never drew.
    """
    rows = fixed_batch(task, seed, "probe", PROBE).inputs
    n_maps = sum(block.n_heads for block in model.attention)
    sample = rows[0, : math.isqrt(MAX_CELLS // n_maps)] if tokens is None else tokens
    maps = capture(model, sample.unsqueeze(0))
    source = task.source(rows)
    on_source = chance = None
    if source is not None and bool((source >= 0).any()):
        on_source = [source_weight(w, source) for w in capture(model, rows)]
        even = torch.ones(rows.size(1), rows.size(1)).tril()
        even = (even / even.sum(-1, keepdim=True)).expand(len(rows), 1, -1, -1)
        chance = float(source_weight(even, source))
    heads = []
    for layer, weights in enumerate(maps):
        for head in range(weights.size(1)):
            T = weights.size(-1)
            entropy = float(row_entropy(weights[0, head]).mean()) if T > 1 else None
            found = None if on_source is None else float(on_source[layer][head])
            heads.append(HeadSummary(layer, head, entropy, found, chance))
    nested = [[[[round(p, 7) for p in row] for row in head] for head in w[0].tolist()] for w in maps]
    return HeadMaps(step, task.name, task.symbols(sample.tolist()), nested, heads, task.note)


def read_tokens(text: str, task: Task, max_seq_len: int, option: str = "--tokens") -> Tensor:
    """Read ids from text, in the task's own symbols or as numbers: "3 5 9", or the characters of a text task.

    Returns: (T,) int64. Raises: UsageError naming what is not an id, or too long.
    """
    known = {symbol: i for i, symbol in enumerate(task.symbols(range(task.vocab_size)))}
    words = list(text) if task.name == "text" else text.replace(",", " ").split()
    if task.name == "text":
        known |= {c: i for i, c in enumerate(task.characters)}  # type: ignore[attr-defined]
    if not words:
        raise UsageError(f"{option} is empty", "give at least one id")
    if len(words) > max_seq_len:
        raise UsageError(f"{option}: {len(words)} tokens exceed max_seq_len={max_seq_len}")
    ids = []
    for place, word in enumerate(words):
        number = known.get(word)
        if number is None and task.name != "text" and word.isascii() and word.isdigit() and len(word) < 10:
            number = int(word)
        if number is None or not 0 <= number < task.vocab_size:
            wanted = f"ids: 0 to {task.vocab_size - 1}"
            raise UsageError(f"{option}: {word!r} (number {place}) is not an id of this task", wanted)
        ids.append(number)
    return torch.tensor(ids)
