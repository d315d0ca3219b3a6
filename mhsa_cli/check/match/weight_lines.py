"""The lines of weights, rows of q, k and v and columns of out, and how they are sorted by heads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Line(NamedTuple):
    """The numbers of a weight along one of its axes: a row of q, k or v, or a column of out."""

    slot: int
    position: int  # among the lines of this weight along this axis, in memory order
    n_lines: int
    indices: Tensor


class Effect(NamedTuple):
    """The columns of the context that a query's or key's line moves: those of its head, or of a group of heads.

    A softmax over the heads moves the other heads as well, but less.
    """

    line: Line
    moved: tuple[int, ...]
    most: tuple[int, ...]


class ByHead(NamedTuple):
    """The rows of q, and of k and v by groups of heads, and the columns of out."""

    q: list[list[Line]]
    k: list[list[Line]]
    v: list[list[Line]]
    out: list[list[Line]]


def of_head(effects: Sequence[Effect]) -> list[Effect]:
    """The same effects, without what they move less than half as far."""
    return [one._replace(moved=one.most) for one in effects]


def by_head_of(
    queries: Sequence[Effect], keys: Sequence[Effect], values: Sequence[Line], out: Sequence[Line]
) -> ByHead | None:
    """Sort the lines of each role by head; None if heads share numbers, or do not lie in all weights alike."""
    heads, groups = (sorted({one.moved for one in effects}) for effects in (queries, keys))
    H, G, R = len(heads), len(groups), len(out)
    if not H or not G or R % H or H % G or sorted(itertools.chain(*heads)) != list(range(R)):
        return None
    each = H // G  # heads with the same keys and values
    if groups != [tuple(sorted(itertools.chain(*heads[h : h + each]))) for h in range(0, H, each)]:
        return None
    of_heads = [[values[column] for column in head] for head in heads]
    if any(
        a is not b for h, rows in enumerate(of_heads) for a, b in zip(rows, of_heads[h // each * each], strict=True)
    ):
        return None
    found = ByHead(
        [[one.line for one in queries if one.moved == head] for head in heads],
        [[one.line for one in keys if one.moved == group] for group in groups],
        of_heads[::each],
        [[out[column] for column in head] for head in heads],
    )
    lines = [line for rows in found for part in rows for line in part]
    every = torch.cat([line.indices for line in lines])
    kinds = {_kind(rows) for rows in found} - {""}
    if any(len(part) != R // H for rows in found for part in rows) or len(every.unique()) < len(every):
        return None
    return None if len(kinds) > 1 or "mixed" in kinds else found


def _kind(by_head: Sequence[Sequence[Line]]) -> str:
    """How heads lie in memory: in blocks, or features first; "" if they have one number each, "mixed" if neither."""
    rows = [(line.slot, line.position, head) for head, lines in enumerate(by_head) for line in lines]
    order = [head for *_, head in sorted(rows)]
    inside = [[(line.slot, line.position) for line in lines] for lines in by_head]
    if any(one != sorted(one) for one in inside):
        return "mixed"
    if len(by_head) == 1 or len(by_head[0]) == 1:
        return "" if order == sorted(order) else "mixed"
    if order == sorted(order):
        return "blocks"
    return "features first" if order == [*range(len(by_head))] * len(by_head[0]) else "mixed"
