"""Lifts of heads that find repeats, by the distance between them, on rows where only the context predicts a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.labels import GENERAL_GAPS
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, ROWS
from mhsa_cli.core.heads.scores import by_head, concat_heads, of_heads
from mhsa_cli.core.heads.targets import duplicates, followers, lift_of, mass_on, row_target_weights, target_keys
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records.heads import GapLimit

GAPS, GAP_ROWS = 4, 16  # repeat distances of each kind that are tested, and rows for each
MAX_LENGTH = 256  # longer rows cost much and add no information
MIN_QUERIES = 32  # that a distance needs in all rows of mixed distances


class GapLifts(NamedTuple):
    """Lifts of N heads (N,) by distance between repeats.

    The induction lift at distances that training favours (`trained`) and at others (`unseen`), and the `duplicate` lift
    at the latter. `limit`: why fewer than GENERAL_GAPS distances of the latter kind were tested.
    """

    trained: dict[int, Tensor]
    unseen: dict[int, Tensor]
    duplicate: dict[int, Tensor]
    limit: GapLimit | None


class Alphabet(NamedTuple):
    """What rows are made of: ordinary `symbols` (n,), after the `start` token of the task's rows if they have one."""

    symbols: Tensor
    start: int | None


def alphabet_of(task: Task, seed: int) -> Alphabet:
    """Return a task's ordinary symbols, and the token that all its rows begin with; None if they differ."""
    first = fixed_batch(task, seed, "probe", ROWS).inputs[:, 0]
    start = int(first[0]) if bool((first == first[0]).all()) else None
    special = [i for i in (start, task.separator) if i is not None]
    symbols = torch.arange(task.n_symbols)
    return Alphabet(symbols[~torch.isin(symbols, torch.tensor(special))], start)


@torch.no_grad()
def gap_lifts(model: TransformerLM, task: Task, seed: int, heads: Sequence[int] | None = None) -> GapLifts:
    """Measure how well heads, by default all, find repeats at trained and at unseen distances.

    Rows are as long as the model allows and repeat blocks of distinct random symbols, a distance each; where that
    leaves too few distances they are of random symbols, whose repeats have many. The layers of `heads` (indices) see
    the same keys.
    """
    heads = range(len(model.heads)) if heads is None else heads
    alphabet, length = alphabet_of(task, seed), min(model.max_seq_len, MAX_LENGTH)
    reach = longest_gap(length - (alphabet.start is not None))
    trained, unseen = gaps_to_test(task.gaps, range(2, min(reach, len(alphabet.symbols)) + 1))
    found: GapLifts | None = None
    if len(unseen) < GENERAL_GAPS and len(alphabet.symbols):
        found = _mixed_lifts(model, heads, task, alphabet, length, seed)
    if found is None or len(found.unseen) <= len(unseen):
        found = _block_lifts(model, heads, alphabet, trained, unseen, length, seed)
    if len(found.unseen) >= GENERAL_GAPS:
        return found
    limit = (
        GapLimit.SYMBOLS if len(gaps_to_test(task.gaps, range(2, reach + 1))[1]) >= GENERAL_GAPS else GapLimit.LENGTH
    )
    return found._replace(limit=limit)


def longest_gap(length: int) -> int:
    """Return the longest distance that leaves a quarter of the queries of a row."""
    return length - max(2, length // 4)


def gaps_to_test(used: Sequence[int], possible: Sequence[int]) -> tuple[list[int], list[int]]:
    """Choose repeat distances among the `possible` ones: some that training uses, some that it does not.

    The latter divide no used one, else a head at a fixed distance would meet its target there. Both lists are spread.
    """
    trained = [gap for gap in possible if gap in used]
    unseen = [gap for gap in possible if not any(other % gap == 0 for other in used)]
    return evenly_spaced(trained), evenly_spaced(unseen)


def evenly_spaced(values: Sequence[int]) -> list[int]:
    """Select at most GAPS of the values, evenly spaced, with the first and the last."""
    if len(values) <= GAPS:
        return list(values)
    return [values[round(i * (len(values) - 1) / (GAPS - 1))] for i in range(GAPS)]


def repeated_blocks(alphabet: Alphabet, gap: int, length: int, seed: int, rows: int = GAP_ROWS) -> Tensor:
    """Draw rows (rows, length) that repeat a block of `gap` distinct random symbols, after the start token."""
    generator, symbols = stream_generator(seed, "probe-gap", gap), alphabet.symbols
    blocks = torch.stack([symbols[torch.randperm(len(symbols), generator=generator)[:gap]] for _ in range(rows)])
    return _started(blocks.repeat(1, -(-length // gap)), alphabet, length)


def mixed_rows(alphabet: Alphabet, length: int, seed: int, rows: int) -> tuple[Tensor, Tensor]:
    """Draw rows (rows, length) of random symbols, after the start token, and by query the distance of the last repeat.

    That is the distance to the last earlier occurrence of the query's symbol, (rows, length), 0 for none.
    """
    generator = stream_generator(seed, "probe-mixed", 0)
    drawn = alphabet.symbols[torch.randint(len(alphabet.symbols), (rows, length), generator=generator)]
    ids = _started(drawn, alphabet, length)
    t = torch.arange(length)
    last = torch.where(duplicates(ids).tril(), t, -1).amax(-1)
    return ids, torch.where(last >= 0, t - last, 0)


def _of_heads(model: TransformerLM, heads: Sequence[int], ids: Tensor) -> Tensor:
    """Compute the weights of some heads on ids (B, T): (B, N, T, T)."""
    return of_heads(concat_heads(head_weights(model, ids)), heads)


def _started(rows: Tensor, alphabet: Alphabet, length: int) -> Tensor:
    if alphabet.start is not None:
        rows = torch.cat([torch.full_like(rows[:, :1], alphabet.start), rows], 1)
    return rows[:, :length]


def _block_lifts(
    model: TransformerLM,
    heads: Sequence[int],
    alphabet: Alphabet,
    trained: Sequence[int],
    unseen: Sequence[int],
    length: int,
    seed: int,
) -> GapLifts:
    """Measure the lifts on rows of one distance each."""
    found, gaps = GapLifts({}, {}, {}, None), (*trained, *unseen)
    if not gaps:
        return found
    visible = model.mixers[model.heads[heads[0]].layer].visible[:length, :length].cpu()
    blocks = torch.stack([repeated_blocks(alphabet, gap, length, seed) for gap in gaps])  # (gaps, rows, length)
    each = blocks.size(1) * len(model.heads) * length**2  # weights of one gap
    means = []
    for part in blocks.split(max(1, MAX_WEIGHTS // each)):
        weights = _of_heads(model, heads, part.flatten(0, 1))
        means.append(weights.unflatten(0, part.shape[:2]).mean(1, dtype=torch.float64))
    mean = torch.cat(means)  # (gaps, N, length, length)
    for target, new, used in ((followers, found.unseen, found.trained), (duplicates, found.duplicate, {})):
        # The rows of a gap share one target, because a block's symbols are distinct.
        share, uniform = row_target_weights(target(blocks[:, 0]), visible)
        mass = torch.einsum("gnqk,gqk->gn", mean, share.to(mean.device))
        lift = lift_of(mass, uniform.unsqueeze(1).to(mean.device))
        for gap, u, gap_lift in zip(gaps, uniform.tolist(), lift, strict=True):
            if math.isfinite(u):
                (used if gap in trained else new)[gap] = gap_lift
    return found


def _mixed_lifts(
    model: TransformerLM, heads: Sequence[int], task: Task, alphabet: Alphabet, length: int, seed: int
) -> GapLifts:
    """Measure the lifts on random rows: at a distance over the queries whose symbol last occurred so far back."""
    found = GapLifts({}, {}, {}, None)
    visible = model.mixers[model.heads[heads[0]].layer].visible[:length, :length].cpu()
    ids, back = mixed_rows(alphabet, length, seed, max(1, min(ROWS, MAX_WEIGHTS // (len(model.heads) * length**2))))
    counts = torch.bincount(back.flatten(), minlength=length)
    trained, unseen = gaps_to_test(task.gaps, [gap for gap in range(2, length) if counts[gap] >= MIN_QUERIES])
    if not unseen:
        return found
    exact = by_head(_of_heads(model, heads, ids))
    for target, new, used in ((followers, found.unseen, found.trained), (duplicates, found.duplicate, {})):
        for gap in (*trained, *unseen):
            keys = target_keys(target(ids), visible, back == gap)
            if keys is not None:
                (used if gap in trained else new)[gap] = lift_of(mass_on(exact, keys), keys.uniform)
    return found
