"""Matching of heads between two models: their maps on shared rows, compared pairwise and paired at least total cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mhsa_cli.config.encoder_decoder import refuse_encoder_decoder
from mhsa_cli.core import make_sure_of_memory
from mhsa_cli.core.devices import one_thread
from mhsa_cli.core.heads.capture import MIN_ROWS, capture, to_cpu
from mhsa_cli.core.heads.comparable import why_not_comparable
from mhsa_cli.core.heads.random_baseline import random_weights
from mhsa_cli.core.heads.scores import concat_heads
from mhsa_cli.core.heads.stream import run_stream
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.errors import UsageError
from mhsa_cli.records.claims import LEVEL, Status
from mhsa_cli.records.heads import Matching, Untested
from mhsa_cli.text import Head, plural

ROWS = 32  # fewer where they are long; more take time and change a cost by little
CHUNK = 2**14  # values compared at once for one head against all of the other model, few enough for a cache
MAX_MAP_CELLS = 2**26  # weights of one model's heads on one row
ALL_MAP_CELLS = 2**24  # the same on all rows, unless one row has more
MAX_WORK = 2**28  # cells of all pairs of heads on all rows, random heads' too, unless one row has more: a second or two
AT_ONCE = 2**20  # weights of random heads in memory, unless a draw has more
DRAWS = (39, 19)  # matchings with random heads, of which 2 or 1 may cost as little as the heads' own at LEVEL
LEAST_GAIN = 0.005  # a smaller one, of two costs that are written alike, is never shown


@torch.no_grad()
def head_distance(first: Tensor, second: Tensor) -> Tensor:
    """Compute the distance of every two heads' maps on the same rows: (n1, B, T, T), (n2, B, T, T) to (n1, n2).

    The Jensen-Shannon divergence of the heads' rows over ln 2, averaged over rows b and queries q: 0 is equal, 1
    disjoint. Query 0 has one key and does not count, unless a head sees later tokens. Memory is bounded by CHUNK.
    Source: Lin 1991.
    Raises: ValueError if the maps are not of the same rows, or have one query.
    """
    (n1, B, T, _), n2 = first.shape, len(second)
    if second.shape[1:] != first.shape[1:] or T < 2:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise ValueError(f"maps have shapes {shapes}: wanted the same rows with 2 or more keys")
    seen = torch.ones(T, T, dtype=torch.bool)
    if not any(bool(w.triu(1).any()) for w in (first, second)):
        seen = seen.tril()
        seen[0] = False
    a, b = (w[:, :, seen].flatten(1) for w in (first, second))  # (n, B * cells): a mean needs no order
    total = torch.zeros(n1, n2, dtype=torch.float64)
    size = max(1, CHUNK // max(n1, n2))
    for start in range(0, a.size(1), size):
        p, r = (w[:, start : start + size].double().clamp_min(1e-300) for w in (a, b))  # 0 ln 0 is 0
        p_log, r_log = (x.log().mul_(x).mul_(0.5) for x in (p, r))
        p, r = p / 2, r / 2
        for i in range(n1):
            mixture = p[i] + r
            # Subtracted key by key, so that equal maps have distance 0 exactly.
            total[i] += (p_log[i] + r_log).sub_(mixture.log().mul_(mixture)).sum(1)
    # float32 rows sum to 1 only within rounding.
    return (total / (B * int(seen.any(1).sum()) * math.log(2))).clamp(0, 1)


def match_heads(first: Sequence[Tensor], second: Sequence[Tensor], inputs: str) -> Matching:
    """Pair the heads of two models, all layers together, with the least total distance (Hungarian method).

    Takes the weights of `capture` on the same rows, one (B, H, T, T) per layer. With unequal numbers of heads the
    smaller model's are all paired.
    Raises: UsageError if a weight is not finite. Source: Kuhn 1955; scipy.optimize.linear_sum_assignment.
    """
    for name, maps in (("first", first), ("second", second)):
        if not all(bool(w.isfinite().all()) for w in maps):
            raise UsageError(f"attention weights of the {name} run are not finite: its heads cannot be compared")
    cost = head_distance(_flat(first), _flat(second))
    rows, columns = cheapest_pairs(cost)
    heads = [[Head(layer, h) for layer, w in enumerate(maps) for h in range(w.size(1))] for maps in (first, second)]
    pairs = [(heads[0][i], heads[1][j], float(cost[i, j])) for i, j in zip(rows, columns, strict=True)]
    return Matching(
        pairs=pairs,
        unmatched_first=[head for i, head in enumerate(heads[0]) if i not in rows],
        unmatched_second=[head for j, head in enumerate(heads[1]) if j not in columns],
        cost=float(cost[rows, columns].mean()),
        inputs=inputs,
    )


def cheapest_pairs(cost: Tensor) -> tuple[list[int], list[int]]:
    """Find the rows and columns (min(n1, n2),) of the pairs with the least total of costs (n1, n2)."""
    make_sure_of_memory("scipy")
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost.numpy())
    return rows.tolist(), columns.tolist()


def compare_models(model1: TransformerLM, task1: Task, model2: TransformerLM, task2: Task, seed: int) -> Matching:
    """Match the heads of two models by their maps on shared held-out rows, and test the cost against random heads.

    Raises: UsageError if no rows can be shared, or the maps are too large.
    """
    refuse_encoder_decoder(bool(model1.source or model2.source), "the match of heads")
    sizes, lengths = (task1.vocab_size, task2.vocab_size), (task1.seq_len, task2.seq_len)
    reason = why_not_comparable(sizes, lengths)
    if reason is not None:
        raise UsageError(reason)
    n, draws = _numbers_of_rows_and_draws(model1, model2, min(lengths))
    rows, inputs = shared_rows(task1, task2, seed, n)
    with one_thread():
        first, second = capture(model1, rows), capture(model2, rows)
        matching = match_heads(first, second, inputs)
        if model1.custom is not None or model2.custom is not None:
            return replace(matching, untested=Untested.CUSTOM)
        if not draws:
            return replace(matching, untested=Untested.SIZE)
        nulls = [
            null_costs(_flat(maps), other, rows, draws, seed, f"match-null-{place}")
            for place, maps, other in ((1, first, model2), (2, second, model1))
        ]
    return judge_matching(matching, nulls)


def null_costs(own: Tensor, model: TransformerLM, rows: Tensor, draws: int, seed: int, stream: str) -> list[float]:
    """Match maps (n, B, T, T) with those of random heads in another model, drawn so many times: the cost of each.

    A draw has one random head for each of the model's, with the same inputs and norms (`random_weights`).
    """
    inputs = run_stream(model, rows).inputs
    generators = [stream_generator(seed, stream, layer) for layer in range(len(model.blocks))]
    n, (B, T) = len(model.heads), rows.shape
    at_once, costs = max(1, AT_ONCE // (n * B * T * T)), list[float]()
    for done in range(0, draws, at_once):
        times = min(at_once, draws - done)
        weights = torch.cat([to_cpu(w) for w in random_weights(model, inputs, times, generators)], 2)
        cost = head_distance(own, weights.transpose(1, 2).flatten(0, 1))  # of own heads to those of all draws
        if not bool(cost.isfinite().all()):
            return []
        costs += [float(each[cheapest_pairs(each)].mean()) for each in cost.split(n, 1)]
    return costs


def judge_matching(matching: Matching, nulls: Sequence[Sequence[float]]) -> Matching:
    """Test the cost of a matching against both null distributions, of equally many costs; the harder one counts.

    The p-value is (1 + number of null costs that are at most the cost) / (1 + number of null costs): at most LEVEL
    exactly if the cost is below the null cost of rank LEVEL * (1 + number). SHOWN if it is by LEAST_GAIN.
    """
    draws = len(nulls[0])
    if not all(nulls):
        return replace(matching, untested=Untested.NOT_FINITE)
    rank = round(LEVEL * (1 + draws))
    limit = min(sorted(null)[rank - 1] for null in nulls)
    p = max((1 + sum(cost <= matching.cost for cost in null)) / (1 + draws) for null in nulls)
    status = Status.SHOWN if limit - matching.cost >= LEAST_GAIN else Status.NOT_SHOWN
    return replace(matching, status=status, null_cost=limit, p_value=p, draws=draws)


def shared_rows(task1: Task, task2: Task, seed: int, n: int) -> tuple[Tensor, str]:
    """Draw n rows (n, T) for models of both tasks, T the shorter task's length, and describe them.

    For one task in two lengths these are the shorter task's rows: longer ones would be cut off. Random ids for tasks
    that share only the vocabulary size.
    """
    short, long = (task1, task2) if task1.seq_len <= task2.seq_len else (task2, task1)
    T = short.seq_len
    reason = None
    if task1.name != task2.name:
        reason = f"{task1.name} and {task2.name} have no rows in common"
    elif task1.symbols(range(task1.vocab_size)) != task2.symbols(range(task2.vocab_size)):
        reason = f"the ids of the two {task1.name} tasks stand for different symbols"
    if reason is not None:
        rows = torch.randint(task1.vocab_size, (n, T), generator=stream_generator(seed, "match", 0))
        inputs = f"{plural(n, 'row')} of {T} random ids, because {reason}: neither run was trained on such rows"
    else:
        rows = fixed_batch(short, seed, "probe", n).inputs
        inputs = f"{plural(n, 'row')} of {short.name}, {T} tokens each"
    if long.seq_len != T:
        inputs += f"; one run was trained on longer rows of {long.seq_len} tokens"
    return rows, inputs


def _flat(maps: Sequence[Tensor]) -> Tensor:
    """Join the heads of all layers: (B, H, T, T) each to (n, B, T, T)."""
    return concat_heads(list(maps)).transpose(0, 1)


def _numbers_of_rows_and_draws(model1: TransformerLM, model2: TransformerLM, T: int) -> tuple[int, int]:
    """Choose the number of rows and of draws of random heads: fewer where rows are long or heads many.

    The captured weights of both models are in memory at the same time. Raises: UsageError if one row is too many.
    """
    n1, n2 = (len(model.heads) for model in (model1, model2))
    cells = max(n1, n2) * T * T
    if cells > MAX_MAP_CELLS:
        raise UsageError(f"maps of {max(n1, n2)} heads on {T} x {T} tokens are too large to compare")
    rows, pairs = min(ROWS, ALL_MAP_CELLS // cells), n1 * n2 * T * T
    for draws in DRAWS:
        fewer = min(rows, MAX_WORK // (pairs * (1 + 2 * draws)))
        if fewer >= MIN_ROWS:
            return fewer, draws
    return max(1, min(rows, MAX_WORK // pairs)), 0
