"""Matching of heads between two models: their maps on shared rows, compared pairwise and paired at least total cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mhsa_cli.core import make_sure_of_memory
from mhsa_cli.core.heads.capture import PROBE_ROWS, capture
from mhsa_cli.core.heads.comparable import why_not_comparable
from mhsa_cli.core.heads.scores import concat_heads
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import Matching
from mhsa_cli.text import Head, plural

CHUNK = 2**16  # values compared at once for one head against all of the other model, few enough for a cache
MAX_MAP_CELLS = 2**26  # weights of one model's heads on one row
ALL_MAP_CELLS = 2**24  # the same on all rows, unless one row has more
MAX_WORK = 2**28  # cells of all pairs of heads on all rows, unless one row has more


@torch.no_grad()
def head_distance(first: Tensor, second: Tensor) -> Tensor:
    """Compute the distance of every two heads' maps on the same rows: (n1, B, T, T), (n2, B, T, T) to (n1, n2).

    The Jensen-Shannon divergence of the heads' causal rows over ln 2, averaged over (b, q >= 1): 0 is equal, 1
    disjoint. Query 0 has one key. Memory is bounded by CHUNK. Source: Lin 1991.
    Raises: ValueError if the maps are not of the same rows, or have one query.
    """
    (n1, B, T, _), n2 = first.shape, len(second)
    if second.shape[1:] != first.shape[1:] or T < 2:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise ValueError(f"maps have shapes {shapes}: wanted the same rows with 2 or more keys")
    past = torch.ones(T, T, dtype=torch.bool).tril()
    past[0] = False
    a, b = (w[:, :, past].flatten(1) for w in (first, second))  # (n, B * cells): a mean needs no order
    total = torch.zeros(n1, n2, dtype=torch.float64)
    size = max(1, CHUNK // max(n1, n2))
    for start in range(0, a.size(1), size):
        p, r = (w[:, start : start + size].double() for w in (a, b))
        p_log, r_log = _x_log_x(p), _x_log_x(r)
        for i in range(n1):
            # Subtracted key by key, so that equal maps have distance 0 exactly.
            total[i] += ((p_log[i] + r_log).mul_(0.5) - _x_log_x((p[i] + r).mul_(0.5))).sum(1)
    # float32 rows sum to 1 only within rounding.
    return (total / (B * (T - 1) * math.log(2))).clamp(0, 1)


def _x_log_x(x: Tensor) -> Tensor:
    """Compute x ln x with 0 for 0, in half the time of torch.xlogy."""
    return x.clamp_min(1e-300).log_().mul_(x)


def match_heads(first: Sequence[Tensor], second: Sequence[Tensor], inputs: str) -> Matching:
    """Pair the heads of two models, all layers together, with the least total distance (Hungarian method).

    Takes the weights of `capture` on the same rows, one (B, H, T, T) per layer. With unequal numbers of heads the
    smaller model's are all paired. `random_cost` is the exact mean over all pairings, which is the mean of all
    distances.
    Raises: UsageError if a weight is not finite. Source: Kuhn 1955; scipy.optimize.linear_sum_assignment.
    """
    make_sure_of_memory("scipy")
    from scipy.optimize import linear_sum_assignment

    for name, maps in (("first", first), ("second", second)):
        if not all(bool(w.isfinite().all()) for w in maps):
            raise UsageError(f"attention weights of the {name} run are not finite: its heads cannot be compared")
    cost = head_distance(*(concat_heads(list(maps)).transpose(0, 1) for maps in (first, second)))
    rows, columns = (part.tolist() for part in linear_sum_assignment(cost.numpy()))
    heads = [[Head(layer, h) for layer, w in enumerate(maps) for h in range(w.size(1))] for maps in (first, second)]
    pairs = [(heads[0][i], heads[1][j], float(cost[i, j])) for i, j in zip(rows, columns, strict=True)]
    return Matching(
        pairs=pairs,
        unmatched_first=[head for i, head in enumerate(heads[0]) if i not in rows],
        unmatched_second=[head for j, head in enumerate(heads[1]) if j not in columns],
        cost=sum(pair[2] for pair in pairs) / len(pairs),
        random_cost=float(cost.mean()),
        inputs=inputs,
    )


def compare_models(model1: TransformerLM, task1: Task, model2: TransformerLM, task2: Task, seed: int) -> Matching:
    """Match the heads of two trained models by their maps on shared held-out rows.

    Raises: UsageError if no rows can be shared, or the maps are too large.
    """
    sizes, lengths = (task1.vocab_size, task2.vocab_size), (task1.seq_len, task2.seq_len)
    reason = why_not_comparable(sizes, lengths)
    if reason is not None:
        raise UsageError(reason)
    rows, inputs = shared_rows(task1, task2, seed, _number_of_rows(model1, model2, min(lengths)))
    return match_heads(capture(model1, rows), capture(model2, rows), inputs)


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
        inputs = f"{plural(n, 'held-out row')} of {short.name}, {T} tokens each"
    if long.seq_len != T:
        inputs += f"; one run was trained on longer rows of {long.seq_len} tokens"
    return rows, inputs


def _number_of_rows(model1: TransformerLM, model2: TransformerLM, T: int) -> int:
    """Choose the number of rows: fewer where they are long or heads many. Raises: UsageError if one is too many.

    The captured weights of both models are in memory at the same time.
    """
    n1, n2 = (len(model.heads) for model in (model1, model2))
    cells = max(n1, n2) * T * T
    if cells > MAX_MAP_CELLS:
        raise UsageError(f"maps of {max(n1, n2)} heads on {T} x {T} tokens are too large to compare")
    return max(1, min(PROBE_ROWS, ALL_MAP_CELLS // cells, MAX_WORK // (n1 * n2 * T * T)))
