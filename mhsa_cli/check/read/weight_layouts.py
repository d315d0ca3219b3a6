"""Which of a block's weights is what: every reading of their names and shapes that makes sense.

The layout is not asked but tried: the reading under which the output equals the reference, or a known fault of it, is
the one. Sizes: D = d_model, H heads, G key/value heads, d = d_head.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, block_diag, stack

from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_names import Group, bias_of, groups_of, is_bias, norm_of
from mhsa_cli.check.tensors import Slot

ORDERS = ["".join(order) for order in itertools.permutations("qkv")]
# How a fused axis of 3 * H * d lies in memory, outermost first: n numbers q, k and v.
ARRANGEMENTS = ("nhd", "hnd", "hdn", "ndh", "dnh")
TURNED = ("shared", "features_first", "on_slices")  # ways to read heads out of a matrix that is turned to (out, in)


class Way(NamedTuple):
    """How a weight is read: which side of a matrix is its input, "" for a Linear's; and how its heads lie in it."""

    matrix: str = ""
    heads: str = ""


class Name(NamedTuple):
    """Which reading of the weights it is: no two of one block have one name."""

    kind: str
    paths: tuple[str, ...]
    out: tuple[str, str]  # how the output projection is read, and its path
    way: Way = Way()
    order: str = ""  # of q, k and v in one matrix
    arrangement: str = ""
    key_heads: int = 0  # where they are fewer


class Out(NamedTuple):
    """What may be the output projection: how it is read, its path, weight and bias."""

    form: str
    path: str
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Layout:
    """One reading of the weights: its name, the roles, the paths of q, k, v and out, and a fault that it implies."""

    name: Name
    roles: Roles
    paths: dict[str, str]
    fault: str | None = None
    named: bool = True  # q, k and v are told by name, not by place


def layouts(found: list[Slot], numbers: dict[str, Tensor], D: int, H: int) -> Iterator[Layout]:
    """List the readings of a block's weights, the likeliest first; nothing if they fit none."""
    mats = [s for s in found if numbers[s.path].dim() >= 2 and not s.norm and not is_bias(s.path)]
    vectors = {s.path: numbers[s.path].flatten() for s in found if not s.norm and all(s is not m for m in mats)}
    if not mats:
        return
    norm = norm_of(found, numbers)
    groups = groups_of(mats)
    for read in (_fused, _separate):
        for layout in read(groups, numbers, vectors, D, H):
            yield replace(layout, roles=replace(layout.roles, norm=norm))


def _facing_out(slot: Slot, weight: Tensor, d_in: int) -> list[tuple[str, Tensor]]:
    """Turn a weight to (out, in), in every way that its shape allows."""
    if weight.dim() != 2:
        return []
    rows, columns = weight.shape
    if slot.linear:
        return [("", weight)] if columns == d_in else []
    turned = [("x_w", weight.transpose(0, 1))] if rows == d_in else []
    return [*turned, *([("x_wt", weight)] if columns == d_in else [])]


def _fused(
    groups: list[Group], numbers: dict[str, Tensor], vectors: dict[str, Tensor], D: int, H: int
) -> Iterator[Layout]:
    for group in groups:
        slot = group.slots[0]
        weight, bias = numbers[slot.path], bias_of(slot.path, vectors)
        if len(group.slots) > 1 or group.role in ("q", "k", "v", "kv"):  # its name says that it is less
            continue
        flat: list[tuple[str, Tensor]] = _facing_out(slot, weight, D)
        if weight.dim() == 3 and weight.size(0) == 3:  # (3, D, D)
            flat = [(way, w) for way in ("x_w", "x_wt") if (w := _three(weight, way, D)) is not None]
        for (way, w), out in itertools.product(flat, _outs(groups, group, numbers, vectors, D)):
            if H > 1 and w.size(0) * H == 3 * D:
                yield from _shared(w, bias, H, group, out)
                continue
            if w.size(0) % 3 or w.size(0) < 3 * H or w.size(0) // 3 % H:
                yield from _grouped(w, bias, D, H, group, out)
                continue
            d = w.size(0) // 3 // H
            if w.size(0) == D:  # a square matrix is no fused one, unless its name says so
                continue
            for axes in ARRANGEMENTS:
                sizes = {"n": 3, "h": H, "d": d}
                shape = [sizes[a] for a in axes]
                back = [axes.index(a) for a in "nhd"]
                parts = w.view(*shape, w.size(1)).permute(*back, 3)
                biases = None if bias is None else bias.view(*shape).permute(*back)
                o = out.weight
                if o is not None and axes.index("d") < axes.index("h"):  # merged the way it was split
                    o = o.reshape(-1, d, H).transpose(1, 2).reshape(o.shape)
                for order in ORDERS:
                    q, k, v = (order.index(r) for r in "qkv")
                    b = [None if biases is None else biases[i] for i in (q, k, v)]
                    roles = Roles(parts[q], parts[k], parts[v], b[0], b[1], b[2], o, out.bias)
                    name = Name("fused", (group.path,), out[:2], Way(way), order, axes)
                    yield Layout(name, roles, {"qkv": group.path, "out": out.path}, named=False)


def _shared(w: Tensor, bias: Tensor | None, H: int, group: Group, out: Out) -> Iterator[Layout]:
    """Read a fused matrix of one head's width: every head uses the same."""
    d = w.size(0) // 3
    parts = w.view(3, 1, d, w.size(1)).expand(3, H, d, w.size(1))
    b = [None] * 3 if bias is None else list(bias.view(3, 1, d).expand(3, H, d))
    name = Name("fused_for_all", (group.path,), out[:2], order="qkv")
    roles = Roles(parts[0], parts[1], parts[2], b[0], b[1], b[2], out.weight, out.bias)
    yield Layout(name, roles, {"qkv": group.path, "out": out.path}, "one_matrix_for_all_heads", named=False)


def _grouped(w: Tensor, bias: Tensor | None, D: int, H: int, group: Group, out: Out) -> Iterator[Layout]:
    """Read a fused matrix with fewer keys and values: q (H * d), then k and v (G * d) each."""
    for G in range(1, H):
        if H % G or w.size(0) % (H + 2 * G) or group.role != "qkv":
            continue
        d = w.size(0) // (H + 2 * G)
        q, k, v = w.split([H * d, G * d, G * d])
        b = (None, None, None) if bias is None else bias.split([H * d, G * d, G * d])
        heads = [t.view(-1, d, D) for t in (q, k, v)]
        biases = [None if t is None else t.view(-1, d) for t in b]
        roles = Roles(heads[0], heads[1], heads[2], biases[0], biases[1], biases[2], out.weight, out.bias)
        name = Name("fused", (group.path,), out[:2], order="qkv", key_heads=G)
        yield Layout(name, roles, {"qkv": group.path, "out": out.path}, named=False)


def _three(weight: Tensor, way: str, D: int) -> Tensor | None:
    if way == "x_w" and weight.size(1) == D:
        return weight.transpose(1, 2).flatten(0, 1)
    return weight.flatten(0, 1) if way == "x_wt" and weight.size(2) == D else None


def _outs(
    groups: list[Group], besides: Group | None, numbers: dict[str, Tensor], vectors: dict[str, Tensor], D: int
) -> Iterator[Out]:
    """List what may be the output projection: by name, then what is left, then none."""
    rest = [g for g in groups if g is not besides and len(g.slots) == 1]
    rest = [g for g in rest if g.role == "out"] or [g for g in rest if g.role == ""]
    for group in rest:
        slot = group.slots[0]
        weight, bias = numbers[slot.path], bias_of(slot.path, vectors)
        if weight.dim() == 3:  # (H, d, D)
            yield Out("by_head", group.path, weight.flatten(0, 1).transpose(0, 1), bias)
        elif slot.linear:
            yield Out("linear", group.path, weight, bias)
        elif weight.dim() == 2:
            yield Out("x_w", group.path, weight.transpose(0, 1), bias)
            if weight.size(0) == weight.size(1):
                yield Out("x_wt", group.path, weight, bias)
    if not rest:
        yield Out("none", "", None, None)


def _separate(
    groups: list[Group], numbers: dict[str, Tensor], vectors: dict[str, Tensor], D: int, H: int
) -> Iterator[Layout]:
    named = {role: [g for g in groups if g.role == role] for role in "qkv"}
    if all(len(members) == 1 for members in named.values()):
        trio = tuple(named[role][0] for role in "qkv")
        yield from _of_three(trio, groups, numbers, vectors, D, H, True)
        return
    if len(named["q"]) == 1 and (kv := [g for g in groups if g.role == "kv"]):
        yield from _query_and_kv(named["q"][0], kv[0], groups, numbers, vectors, D, H)
        return
    plain = [g for g in groups if len(g.slots) == 1]
    wide = [g for g in plain if g.role in ("", "q", "k", "v", "out")]
    if 3 <= len(wide) <= 5:
        for trio in itertools.permutations(wide, 3):
            yield from _of_three(trio, groups, numbers, vectors, D, H, False)


def _of_three(
    trio: tuple[Group, ...], groups: list[Group], numbers: dict[str, Tensor], vectors: dict[str, Tensor], D: int,
    H: int, named: bool,
) -> Iterator[Layout]:  # fmt: skip
    others = [g for g in groups if all(g is not member for member in trio)]
    for query in _by_head(trio[0], numbers, vectors, D, H, None):
        way, shared = query[0], query[3]
        rest = [list(_by_head(g, numbers, vectors, D, H, query[1].size(1))) for g in trio[1:]]
        parts = [query, *(next((r for r in reading if r[0] == way and r[3] == shared), None) for reading in rest)]
        if any(p is None for p in parts):
            continue
        for out in _outs(others, None, numbers, vectors, D):
            weights = [p[1] for p in parts if p]
            biases = [p[2] for p in parts if p]
            o = out.weight
            if o is not None and way.heads == "features_first":
                if o.size(1) != H * weights[2].size(1):
                    continue
                o = o.reshape(o.size(0), -1, H).transpose(1, 2).reshape(o.shape)
            roles = Roles(weights[0], weights[1], weights[2], biases[0], biases[1], biases[2], o, out.bias)
            paths = dict(zip(("q", "k", "v", "out"), (*(g.path for g in trio), out.path), strict=True))
            fault = ("heads_on_slices" if way.heads == "on_slices" else "one_matrix_for_all_heads") if shared else None
            fewer = len(weights[1]) if len(weights[1]) < H else 0
            name = Name("three", tuple(g.path for g in trio), out[:2], way, key_heads=fewer)
            yield Layout(name, roles, paths, fault, named)


def _by_head(
    group: Group, numbers: dict[str, Tensor], vectors: dict[str, Tensor], D: int, H: int, d: int | None
) -> Iterator[tuple[Way, Tensor, Tensor | None, bool]]:
    """Read a weight as (heads, d, D) with its bias (heads, d): way, both, and whether all heads share one matrix.

    Queries (d is None) have H heads; keys and values may have fewer, of the queries' width d.
    """
    slots, first = group.slots, group.slots[0]
    weight = numbers[first.path]
    if len(slots) > 1:  # one for each head
        for way, _ in _facing_out(first, weight, D):
            each = [dict(_facing_out(s, numbers[s.path], D)).get(way) for s in slots]
            biases = [bias_of(s.path, vectors) for s in slots]
            if all(w is not None and w.shape == each[0].shape for w in each):  # type: ignore[union-attr]
                bias = stack(biases) if all(b is not None for b in biases) else None  # type: ignore[arg-type]
                yield (Way(way, "by_head"), stack(each), bias, False)  # type: ignore[arg-type]
        return
    bias = bias_of(first.path, vectors)
    if weight.dim() == 3:
        if weight.size(1) == D:
            yield Way("x_w", "by_head"), weight.transpose(1, 2), _shaped(bias, weight.size(0)), False
        if weight.size(2) == D:
            yield Way("x_wt", "by_head"), weight, _shaped(bias, weight.size(0)), False
        if weight.size(0) == D:  # (D, H, d)
            yield Way(heads="between"), weight.permute(1, 2, 0), _shaped(bias, weight.size(1)), False
        return
    if H > 1 and weight.dim() == 2 and weight.size(0) == weight.size(1) and weight.size(0) * H == D:
        yield from _slices(first, weight, bias, H)
    for way, w in _facing_out(first, weight, D):
        rows = w.size(0)
        if H > 1 and (rows * H == D if d is None else rows == d):  # the width of one head: is it all heads'?
            yield Way(way, "shared"), w.expand(H, rows, D), None if bias is None else bias.expand(H, rows), True
        heads = H if d is None else rows // d
        if heads == 0 or rows % heads or H % heads or (d is not None and rows != heads * d):
            continue
        yield Way(way), w.view(heads, -1, D), _shaped(bias, heads), False
        turned = w.view(-1, heads, D).transpose(0, 1)
        yield Way(way, "features_first"), turned, None if bias is None else bias.view(-1, heads).T, False


def _slices(
    slot: Slot, weight: Tensor, bias: Tensor | None, H: int
) -> Iterator[tuple[Way, Tensor, Tensor | None, bool]]:
    """Read a (d, d) matrix that makes every head from its own slice of the input: (H, d, H * d), zero elsewhere."""
    for way, w in (("", weight),) if slot.linear else (("x_w", weight.transpose(0, 1)), ("x_wt", weight)):
        whole = block_diag(*[w] * H).view(H, w.size(0), -1)
        yield Way(way, "on_slices"), whole, None if bias is None else bias.expand(H, -1), True


def _shaped(bias: Tensor | None, heads: int) -> Tensor | None:
    return None if bias is None else bias.reshape(heads, -1)


def _query_and_kv(
    query: Group, kv: Group, groups: list[Group], numbers: dict[str, Tensor], vectors: dict[str, Tensor], D: int,
    H: int,
) -> Iterator[Layout]:  # fmt: skip
    """Read a query projection beside one for keys and values together."""
    others = [g for g in groups if g is not query and g is not kv]
    slot = kv.slots[0]
    for way, q, q_bias, _ in _by_head(query, numbers, vectors, D, H, None):
        for kv_way, w in _facing_out(slot, numbers[slot.path], D):
            d = q.size(1)
            bias = bias_of(slot.path, vectors)
            alike = kv_way == way.matrix and (not way.heads or (way.matrix and way.heads in TURNED))
            if w.size(0) % (2 * d) or not alike:
                continue
            for order, out in itertools.product(("kv", "vk"), _outs(others, None, numbers, vectors, D)):
                parts = w.view(2, -1, d, D)
                both = None if bias is None else bias.view(2, -1, d)
                k, v = order.index("k"), order.index("v")
                yield Layout(Name("query_and_kv", (query.path, kv.path), out[:2], way, order),
                             Roles(q, parts[k], parts[v], q_bias, None if both is None else both[k],
                                   None if both is None else both[v], out.weight, out.bias),
                             {"q": query.path, "k": kv.path, "v": kv.path, "out": out.path})  # fmt: skip
