"""Which of a block's weights is what: every reading of their names and shapes that makes sense.

The layout is not asked but tried: the reading under which the output equals the reference, or a known fault of it, is
the one. Sizes: D = d_model, H heads, G key/value heads, d = d_head.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, block_diag, stack

from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_names import Group, bias_of, groups_of, norm_of
from mhsa_cli.check.roles import is_bias
from mhsa_cli.check.tensors import Slot

ORDERS = ["".join(order) for order in itertools.permutations("qkv")]
# How a fused axis of 3 * H * d lies in memory, outermost first: n numbers q, k and v.
ARRANGEMENTS = ("nhd", "hnd", "hdn", "ndh", "dnh")
SHARED = {"shared": "one_matrix_for_all_heads", "on_slices": "heads_on_slices"}  # way to read heads -> its fault
TURNED = (*SHARED, "features_first")  # ways to read heads out of a matrix that is turned to (out, in)


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


Part = tuple[Tensor, Tensor | None]  # of q, k or v: the weight (heads, d, D) and its bias (heads, d)


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
    reader = _Reader(groups_of(mats), numbers, vectors, D, H)
    for layout in (*reader.fused(), *reader.separate()):
        yield replace(layout, roles=replace(layout.roles, norm=norm))


def _turned(weight: Tensor, d_in: int) -> list[tuple[str, Tensor]]:
    """Turn a weight (..., a, b) to (..., out, in), in every way that its shape allows."""
    ways = (("x_w", weight.mT), ("x_wt", weight))
    return [(way, w) for way, w in ways if w.size(-1) == d_in]


def _facing_out(slot: Slot, weight: Tensor, d_in: int) -> list[tuple[str, Tensor]]:
    """Turn a matrix to (out, in), in every way that its shape allows; a Linear's lies so."""
    if weight.dim() != 2:
        return []
    return _turned(weight, d_in) if not slot.linear else [("", weight)] if weight.size(1) == d_in else []


def _heads_last(out: Tensor, H: int) -> Tensor:
    """Give an output projection of features merged (d, H) as one of heads merged (H, d)."""
    return out.reshape(out.size(0), -1, H).mT.reshape(out.shape)


def _shaped(bias: Tensor | None, heads: int) -> Tensor | None:
    return None if bias is None else bias.reshape(heads, -1)


def _roles(parts: Sequence[Part], out: Out) -> Roles:
    (q, q_bias), (k, k_bias), (v, v_bias) = parts
    return Roles(q, k, v, q_bias, k_bias, v_bias, out.weight, out.bias)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The matrices of a block in groups, its numbers and its vectors by their paths, and its sizes."""

    groups: list[Group]
    numbers: dict[str, Tensor]
    vectors: dict[str, Tensor]
    D: int
    H: int

    def outs(self, *besides: Group) -> Iterator[Out]:
        """List what may be the output projection beside others: by name, then what is left, then none."""
        rest = [g for g in self.groups if len(g.slots) == 1 and all(g is not one for one in besides)]
        rest = [g for g in rest if g.role == "out"] or [g for g in rest if g.role == ""]
        for group in rest:
            slot = group.slots[0]
            weight, bias = self.numbers[slot.path], bias_of(slot.path, self.vectors)
            if weight.dim() == 3:  # (H, d, D)
                yield Out("by_head", group.path, weight.flatten(0, 1).mT, bias)
            elif slot.linear:
                yield Out("linear", group.path, weight, bias)
            elif weight.dim() == 2:
                yield Out("x_w", group.path, weight.mT, bias)
                if weight.size(0) == weight.size(1):
                    yield Out("x_wt", group.path, weight, bias)
        if not rest:
            yield Out("none", "", None, None)

    def fused(self) -> Iterator[Layout]:
        """Read q, k and v out of one matrix."""
        for group in self.groups:
            slot = group.slots[0]
            weight = self.numbers[slot.path]
            if len(group.slots) > 1 or group.role in ("q", "k", "v", "kv"):  # its name says that it is less
                continue
            flat = _facing_out(slot, weight, self.D)
            if weight.dim() == 3 and weight.size(0) == 3:  # (3, D, D)
                flat = [(way, w.flatten(0, 1)) for way, w in _turned(weight, self.D)]
            for (way, w), out in itertools.product(flat, self.outs(group)):
                yield from self._of_one(w, bias_of(slot.path, self.vectors), Way(way), group, out)

    def _of_one(self, w: Tensor, bias: Tensor | None, way: Way, group: Group, out: Out) -> Iterator[Layout]:
        H, rows = self.H, w.size(0)

        def layout(parts: Sequence[Part], out: Out = out, fault: str | None = None, **how: Any) -> Layout:
            name = Name("fused_for_all" if fault else "fused", (group.path,), out[:2], **how)
            return Layout(name, _roles(parts, out), {"qkv": group.path, "out": out.path}, fault, named=False)

        def split(sizes: list[int], d: int) -> list[Part]:
            biases = [None] * 3 if bias is None else [b.view(-1, d) for b in bias.split(sizes)]
            return [(part.view(-1, d, self.D), b) for part, b in zip(w.split(sizes), biases, strict=True)]

        if H > 1 and rows * H == 3 * self.D:  # of one head's width: every head uses the same
            parts = [(part.expand(H, -1, -1), None if b is None else b.expand(H, -1))
                     for part, b in split([rows // 3] * 3, rows // 3)]  # fmt: skip
            yield layout(parts, fault=SHARED["shared"], order="qkv")
        elif rows % 3 or rows < 3 * H or rows // 3 % H:  # with fewer keys and values: q (H * d), k and v (G * d) each
            for G in range(1, H if group.role == "qkv" else 1):
                if H % G == 0 and rows % (H + 2 * G) == 0:
                    d = rows // (H + 2 * G)
                    yield layout(split([H * d, G * d, G * d], d), order="qkv", key_heads=G)
        elif rows != self.D:  # a square matrix is no fused one, unless its name says so
            for axes in ARRANGEMENTS:
                sizes = {"n": 3, "h": H, "d": rows // 3 // H}
                shape, back = [sizes[a] for a in axes], [axes.index(a) for a in "nhd"]
                biases = [None] * 3 if bias is None else bias.view(shape).permute(back)
                three = list(zip(w.view(*shape, self.D).permute(*back, 3), biases, strict=True))
                merged = out
                if out.weight is not None and axes.index("d") < axes.index("h"):  # merged the way it was split
                    merged = out._replace(weight=_heads_last(out.weight, H))
                for order in ORDERS:
                    parts = [three[order.index(role)] for role in "qkv"]
                    yield layout(parts, merged, way=way, order=order, arrangement=axes)

    def separate(self) -> Iterator[Layout]:
        """Read q, k and v out of matrices of their own, or k and v out of one beside that of q."""
        named = {role: [g for g in self.groups if g.role == role] for role in ("q", "k", "v", "kv")}
        if all(len(named[role]) == 1 for role in "qkv"):
            yield from self._of_three(tuple(named[role][0] for role in "qkv"), True)
        elif len(named["q"]) == 1 and named["kv"]:
            yield from self._of_two(named["q"][0], named["kv"][0])
        else:
            wide = [g for g in self.groups if len(g.slots) == 1 and g.role in ("", "q", "k", "v", "out")]
            if 3 <= len(wide) <= 5:
                for trio in itertools.permutations(wide, 3):
                    yield from self._of_three(trio, False)

    def _of_three(self, trio: tuple[Group, ...], named: bool) -> Iterator[Layout]:
        H = self.H
        for way, weight, bias in self._by_head(trio[0]):
            parts: list[Part] = [(weight, bias)]
            for group in trio[1:]:  # read in the same way
                found = self._by_head(group, weight.size(1))
                parts += [(w, b) for other, w, b in found if other == way][:1]
            if len(parts) < 3:
                continue
            for out in self.outs(*trio):
                merged = out
                if out.weight is not None and way.heads == "features_first":
                    if out.weight.size(1) != H * parts[2][0].size(1):
                        continue
                    merged = out._replace(weight=_heads_last(out.weight, H))
                paths = dict(zip(("q", "k", "v", "out"), (*(g.path for g in trio), out.path), strict=True))
                fewer = len(parts[1][0]) if len(parts[1][0]) < H else 0
                name = Name("three", tuple(g.path for g in trio), out[:2], way, key_heads=fewer)
                yield Layout(name, _roles(parts, merged), paths, SHARED.get(way.heads), named)

    def _of_two(self, query: Group, kv: Group) -> Iterator[Layout]:
        slot = kv.slots[0]
        bias = bias_of(slot.path, self.vectors)
        for way, q, q_bias in self._by_head(query):
            d = q.size(1)
            for kv_way, w in _facing_out(slot, self.numbers[slot.path], self.D):
                alike = kv_way == way.matrix and (not way.heads or (way.matrix and way.heads in TURNED))
                if w.size(0) % (2 * d) or not alike:
                    continue
                biases = [None] * 2 if bias is None else bias.view(2, -1, d)
                both = list(zip(w.view(2, -1, d, self.D), biases, strict=True))
                for order, out in itertools.product(("kv", "vk"), self.outs(query, kv)):
                    parts = [(q, q_bias), both[order.index("k")], both[order.index("v")]]
                    paths = {"q": query.path, "k": kv.path, "v": kv.path, "out": out.path}
                    name = Name("query_and_kv", (query.path, kv.path), out[:2], way, order)
                    yield Layout(name, _roles(parts, out), paths)

    def _by_head(self, group: Group, d: int | None = None) -> Iterator[tuple[Way, Tensor, Tensor | None]]:
        """Read a weight as (heads, d, D) with its bias (heads, d), and in which way.

        Queries (d is None) have H heads; keys and values may have fewer, of the queries' width d.
        """
        slots, first, D, H = group.slots, group.slots[0], self.D, self.H
        weight, bias = self.numbers[first.path], bias_of(first.path, self.vectors)
        if len(slots) > 1:  # one for each head
            biases = [b for s in slots if (b := bias_of(s.path, self.vectors)) is not None]
            for way, _ in _facing_out(first, weight, D):
                each = [w for s in slots for other, w in _facing_out(s, self.numbers[s.path], D) if other == way]
                if len(each) == len(slots) and len({w.shape for w in each}) == 1:
                    yield Way(way, "by_head"), stack(each), stack(biases) if len(biases) == len(slots) else None
            return
        if weight.dim() == 3:
            for way, w in _turned(weight, D):
                yield Way(way, "by_head"), w, _shaped(bias, w.size(0))
            if weight.size(0) == D:  # (D, H, d)
                yield Way(heads="between"), weight.permute(1, 2, 0), _shaped(bias, weight.size(1))
            return
        if H > 1 and weight.dim() == 2 and weight.size(0) == weight.size(1) and weight.size(0) * H == D:
            # Every head is made from its own slice of the input: (H, d, H * d), zero elsewhere.
            for way, w in [("", weight)] if first.linear else _turned(weight, weight.size(0)):
                whole = block_diag(*[w] * H).view(H, w.size(0), -1)
                yield Way(way, "on_slices"), whole, None if bias is None else bias.expand(H, -1)
        for way, w in _facing_out(first, weight, D):
            rows = w.size(0)
            if H > 1 and (rows * H == D if d is None else rows == d):  # the width of one head: is it all heads'?
                yield Way(way, "shared"), w.expand(H, rows, D), None if bias is None else bias.expand(H, rows)
            heads = H if d is None else rows // d
            if heads == 0 or rows % heads or H % heads or (d is not None and rows != heads * d):
                continue
            yield Way(way), w.view(heads, -1, D), _shaped(bias, heads)
            turned = w.view(-1, heads, D).transpose(0, 1)
            yield Way(way, "features_first"), turned, None if bias is None else bias.view(-1, heads).T
