"""Layouts of a block's weights: every way to read q, k, v and out from their names and shapes that makes sense.

Which one holds is not guessed but tested: the layout under which the output equals the reference, or a known fault of
it. Sizes: D = d_model, H heads, G key/value heads, d = d_head.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, arange, block_diag, stack

from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_names import Group, Matrix, gate_of, groups_of, mlp_of, norms_of
from mhsa_cli.check.tensors import Slot

ORDERS = ["".join(order) for order in itertools.permutations("qkv")]
# Memory order of a fused axis of 3 * H * d, outermost first: n numbers q, k and v.
ARRANGEMENTS = ("nhd", "hnd", "hdn", "ndh", "dnh")
SHARED = {"shared": "one_matrix_for_all_heads", "on_slices": "heads_on_slices"}  # how heads are read -> its fault
TRANSPOSED = (*SHARED, "features_first")  # how heads are read from a matrix transposed to (out, in)


class Axes(NamedTuple):
    """The axes of a weight: the side of its input ("" for a Linear), and how heads lie in it."""

    side: str = ""
    heads: str = ""


class LayoutName(NamedTuple):
    """Identifies a layout: no two layouts of one block have the same name."""

    kind: str
    paths: tuple[str, ...]
    out: tuple[str, str]  # how the output projection is read, and its path
    axes: Axes = Axes()
    order: str = ""  # of q, k and v in one matrix
    arrangement: str = ""
    key_heads: int = 0  # if fewer than query heads


Projection = tuple[Tensor, Tensor | None]  # of q, k or v: the weight (heads, d, D) and its bias (heads, d)


class OutProjection(NamedTuple):
    """A possible output projection: how it is read, its path, weight and bias."""

    form: str
    path: str
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout of the weights: its name, the roles, the paths of q, k, v and out, and a fault that it implies."""

    name: LayoutName
    roles: Roles
    paths: dict[str, str]
    fault: str | None = None
    named: bool = True  # q, k and v are identified by name, not by position
    indices: Roles | None = None  # of a measured layout: where each role's numbers lie, all tensors laid end to end


def layouts(found: list[Slot], numbers: dict[str, Tensor], D: int, H: int) -> Iterator[Layout]:
    """List the possible layouts of a block's weights, the likeliest first."""
    reader = _Reader(groups_of(found, numbers), D, H)
    if reader.groups:
        for layout in (*reader.fused(), *reader.separate()):
            yield replace(layout, roles=with_more_roles(layout.roles, found, numbers, D, set(layout.paths.values())))


def with_more_roles(
    roles: Roles, found: list[Slot], numbers: dict[str, Tensor], D: int, used: Collection[str]
) -> Roles:
    """Add the norms, the gate and the MLP of a block to the roles of its projections, whose paths are `used`."""
    norms, (gate, gate_bias) = norms_of(found, numbers, D), gate_of(found, numbers, D) or (None, None)
    norm, mlp_norm, q_norm, k_norm = (norms.get(name) for name in ("norm", "mlp_norm", "q_norm", "k_norm"))
    mlp = mlp_of(found, numbers, D, used)
    return replace(roles, norm=norm, q_norm=q_norm, k_norm=k_norm, gate=gate, gate_bias=gate_bias, mlp=mlp,
                   mlp_norm=mlp_norm)  # fmt: skip


def index_layouts(found: list[Slot], d_model: int, n_heads: int, wanted: Sequence[Layout]) -> dict[LayoutName, Roles]:
    """Give, for each wanted layout of the weights, roles that hold indices into all tensors laid end to end."""
    start, indices = 0, {}
    for slot in found:
        size = tuple(slot.value.shape)
        count = math.prod(size)
        indices[slot.path] = arange(start, start + count).view(size)
        start += count
    read = {layout.name: layout.roles for layout in layouts(found, indices, d_model, n_heads)}
    return {one.name: one.indices or read[one.name] for one in wanted if one.indices or one.name in read}


def _orientations(weight: Tensor, d_in: int) -> list[tuple[str, Tensor]]:
    """Transpose a weight (..., a, b) to (..., out, in) in every way that its shape allows."""
    return [(side, w) for side, w in (("x_w", weight.mT), ("x_wt", weight)) if w.size(-1) == d_in]


def _matrix_orientations(matrix: Matrix, d_in: int) -> list[tuple[str, Tensor]]:
    """Transpose a matrix to (out, in) in every way that its shape allows; a Linear's is already."""
    weight = matrix.weight
    if weight.dim() != 2:
        return []
    if matrix.is_linear:
        return [("", weight)] if weight.size(1) == d_in else []
    return _orientations(weight, d_in)


def _heads_last(out: OutProjection, H: int) -> OutProjection:
    """Convert an output projection of features merged as (d, H) to one merged as (H, d)."""
    w = out.weight
    return out if w is None else out._replace(weight=w.reshape(w.size(0), -1, H).mT.reshape(w.shape))


def _by_heads(bias: Tensor | None, heads: int) -> Tensor | None:
    return None if bias is None else bias.reshape(heads, -1)


def _roles(projections: Sequence[Projection], out: OutProjection) -> Roles:
    (q, q_bias), (k, k_bias), (v, v_bias) = projections
    return Roles(q, k, v, q_bias, k_bias, v_bias, out.weight, out.bias)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The matrices of a block in groups, and its sizes."""

    groups: list[Group]
    D: int
    H: int

    def out_projections(self, *used: Group) -> Iterator[OutProjection]:
        """List the possible output projections: by name, else among what is not used, else none."""
        matrices = [matrix for group in used for matrix in group.matrices]
        rest = [g for g in self.groups if len(g.matrices) == 1 and all(g.matrices[0] is not one for one in matrices)]
        rest = [g for g in rest if g.role == "out"] or [g for g in rest if g.role == ""]
        for group in rest:
            weight, bias = group.matrices[0].weight, group.matrices[0].bias
            if weight.dim() == 3:  # (H, d, D)
                yield OutProjection("by_head", group.path, weight.flatten(0, 1).mT, bias)
            elif group.matrices[0].is_linear:
                yield OutProjection("linear", group.path, weight, bias)
            elif weight.dim() == 2:
                yield OutProjection("x_w", group.path, weight.mT, bias)
                if weight.size(0) == weight.size(1):
                    yield OutProjection("x_wt", group.path, weight, bias)
        if not rest:
            yield OutProjection("none", "", None, None)

    def fused(self) -> Iterator[Layout]:
        """Read q, k and v from one matrix."""
        lists = [g for g in self.groups if g.role == "list" and len(g.matrices) == self.H and any(self._stacked(g))]
        for group in lists:
            yield from self._of_each_head(group)
        of_a_head = [matrix for group in lists for matrix in group.matrices]
        for group in self.groups:
            first = group.matrices[0]
            if any(first is matrix for matrix in of_a_head):
                continue
            if len(group.matrices) > 1 or group.role in ("q", "k", "v", "kv"):  # the name says that it holds less
                continue
            possible = _matrix_orientations(first, self.D)
            if first.weight.dim() == 3 and first.weight.size(0) == 3:  # (3, D, D)
                possible = [(side, w.flatten(0, 1)) for side, w in _orientations(first.weight, self.D)]
            for (side, w), out in itertools.product(possible, self.out_projections(group)):
                yield from self._of_one(w, first.bias, Axes(side), group, out)

    def _of_each_head(self, group: Group) -> Iterator[Layout]:
        """Read q, k and v of each head from a matrix of its own."""
        for (side, each, bias), out in itertools.product(self._stacked(group), self.out_projections(group)):
            w, b = each.flatten(0, 1), None if bias is None else bias.flatten()
            if each.size(1) % 3 == 0:
                yield from self._of_orders(w, b, Axes(side), ("hnd", "hdn"), group, out)

    def _of_one(self, w: Tensor, bias: Tensor | None, axes: Axes, group: Group, out: OutProjection) -> Iterator[Layout]:
        H, rows = self.H, w.size(0)

        def layout(projections: Sequence[Projection], fault: str | None = None, **how: Any) -> Layout:
            name = LayoutName("fused_for_all" if fault else "fused", (group.path,), out[:2], **how)
            return Layout(name, _roles(projections, out), {"qkv": group.path, "out": out.path}, fault, named=False)

        def split(sizes: list[int], d: int) -> list[Projection]:
            biases = [None] * 3 if bias is None else [b.view(-1, d) for b in bias.split(sizes)]
            return [(part.view(-1, d, self.D), b) for part, b in zip(w.split(sizes), biases, strict=True)]

        if H > 1 and rows * H == 3 * self.D:  # the width of one head: all heads share it
            shared = [(weight.expand(H, -1, -1), None if b is None else b.expand(H, -1))
                      for weight, b in split([rows // 3] * 3, rows // 3)]  # fmt: skip
            yield layout(shared, fault=SHARED["shared"], order="qkv")
        elif rows % 3 or rows < 3 * H or rows // 3 % H:  # fewer keys and values: q (H * d), k and v (G * d) each
            for G in range(1, H if group.role == "qkv" else 1):
                if H % G == 0 and rows % (H + 2 * G) == 0:
                    d = rows // (H + 2 * G)
                    yield layout(split([H * d, G * d, G * d], d), order="qkv", key_heads=G)
        elif rows != self.D:  # a square matrix is not fused
            yield from self._of_orders(w, bias, axes, ARRANGEMENTS, group, out)

    def _of_orders(
        self, w: Tensor, bias: Tensor | None, axes: Axes, arrangements: Sequence[str], group: Group, out: OutProjection
    ) -> Iterator[Layout]:
        """Read q, k and v from rows in every order and arrangement."""
        sizes = {"n": 3, "h": self.H, "d": w.size(0) // 3 // self.H}
        for arrangement in arrangements:
            shape, back = [sizes[a] for a in arrangement], [arrangement.index(a) for a in "nhd"]
            biases = [None] * 3 if bias is None else bias.view(shape).permute(back)
            three = list(zip(w.view(*shape, self.D).permute(*back, 3), biases, strict=True))
            # Heads are merged in the order in which they were split.
            merged = _heads_last(out, self.H) if arrangement.index("d") < arrangement.index("h") else out
            kind = "fused_by_head" if len(group.matrices) > 1 else "fused"
            for order in ORDERS:
                name = LayoutName(kind, (group.path,), out[:2], axes, order, arrangement)
                roles = _roles([three[order.index(role)] for role in "qkv"], merged)
                yield Layout(name, roles, {"qkv": group.path, "out": out.path}, named=False)

    def separate(self) -> Iterator[Layout]:
        """Read q, k and v from separate matrices, or k and v from one matrix beside that of q."""
        named = {role: [g for g in self.groups if g.role == role] for role in ("q", "k", "v", "kv")}
        if all(len(named[role]) == 1 for role in "qkv"):
            yield from self._of_three(tuple(named[role][0] for role in "qkv"), True)
        elif len(named["q"]) == 1 and named["kv"]:
            yield from self._of_two(named["q"][0], named["kv"][0])
        else:
            possible = [g for g in self.groups if len(g.matrices) == 1 and g.role in ("", "q", "k", "v", "out")]
            if 3 <= len(possible) <= 5:
                for trio in itertools.permutations(possible, 3):
                    yield from self._of_three(trio, False)

    def _of_three(self, trio: tuple[Group, ...], named: bool) -> Iterator[Layout]:
        H = self.H
        for axes, weight, bias in self._by_head(trio[0]):
            projections: list[Projection] = [(weight, bias)]
            for group in trio[1:]:  # all with the same axes
                readings = self._by_head(group, weight.size(1))
                projections += [(w, b) for other, w, b in readings if other == axes][:1]
            if len(projections) < 3:
                continue
            for out in self.out_projections(*trio):
                merged = out
                if out.weight is not None and axes.heads == "features_first":
                    if out.weight.size(1) != H * projections[2][0].size(1):
                        continue
                    merged = _heads_last(out, H)
                paths = dict(zip(("q", "k", "v", "out"), (*(g.path for g in trio), out.path), strict=True))
                key_heads = len(projections[1][0])
                key_heads = key_heads if key_heads < H else 0
                name = LayoutName("three", tuple(g.path for g in trio), out[:2], axes, key_heads=key_heads)
                yield Layout(name, _roles(projections, merged), paths, SHARED.get(axes.heads), named)

    def _of_two(self, query: Group, kv: Group) -> Iterator[Layout]:
        bias = kv.matrices[0].bias
        for axes, q, q_bias in self._by_head(query):
            d = q.size(1)
            for side, w in _matrix_orientations(kv.matrices[0], self.D):
                same = side == axes.side and (not axes.heads or (axes.side and axes.heads in TRANSPOSED))
                if w.size(0) % (2 * d) or not same:
                    continue
                biases = [None] * 2 if bias is None else bias.view(2, -1, d)
                both = list(zip(w.view(2, -1, d, self.D), biases, strict=True))
                for order, out in itertools.product(("kv", "vk"), self.out_projections(query, kv)):
                    projections = [(q, q_bias), both[order.index("k")], both[order.index("v")]]
                    paths = {"q": query.path, "k": kv.path, "v": kv.path, "out": out.path}
                    name = LayoutName("query_and_kv", (query.path, kv.path), out[:2], axes, order)
                    yield Layout(name, _roles(projections, out), paths)

    def _stacked(self, group: Group) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Stack a list of matrices to (n, rows, D), in every way that their shapes allow, with their biases."""
        members = group.matrices
        biases = [head.bias for head in members if head.bias is not None]
        for side, _ in _matrix_orientations(members[0], self.D):
            each = [w for head in members for other, w in _matrix_orientations(head, self.D) if other == side]
            if len(each) == len(members) and len({w.shape for w in each}) == 1:
                yield side, stack(each), stack(biases) if len(biases) == len(members) else None

    def _by_head(self, group: Group, d: int | None = None) -> Iterator[tuple[Axes, Tensor, Tensor | None]]:
        """Read a weight as (heads, d, D) with its bias (heads, d), in every way that its shape allows.

        Queries (d is None) have H heads; keys and values may have fewer, of the queries' width d.
        """
        members, first, D, H = group.matrices, group.matrices[0], self.D, self.H
        weight, bias = first.weight, first.bias
        if len(members) > 1:  # one for each head
            for side, w, stacked in self._stacked(group):
                yield Axes(side, "by_head"), w, stacked
            return
        if weight.dim() == 3:
            for side, w in _orientations(weight, D):
                yield Axes(side, "by_head"), w, _by_heads(bias, w.size(0))
            if weight.size(0) == D:  # (D, H, d)
                yield Axes(heads="between"), weight.permute(1, 2, 0), _by_heads(bias, weight.size(1))
            return
        if H > 1 and weight.dim() == 2 and weight.size(0) == weight.size(1) and weight.size(0) * H == D:
            # Each head reads its own slice of the input: (H, d, H * d), zero elsewhere.
            for side, w in [("", weight)] if first.is_linear else _orientations(weight, weight.size(0)):
                whole = block_diag(*[w] * H).view(H, w.size(0), -1)
                yield Axes(side, "on_slices"), whole, None if bias is None else bias.expand(H, -1)
        for side, w in _matrix_orientations(first, D):
            rows = w.size(0)
            if H > 1 and (rows * H == D if d is None else rows == d):  # the width of one head: do all share it?
                yield Axes(side, "shared"), w.expand(H, rows, D), None if bias is None else bias.expand(H, rows)
            heads = H if d is None else rows // d
            if heads == 0 or rows % heads or H % heads or (d is not None and rows != heads * d):
                continue
            yield Axes(side), w.view(heads, -1, D), _by_heads(bias, heads)
            transposed = w.view(-1, heads, D).transpose(0, 1)
            yield Axes(side, "features_first"), transposed, None if bias is None else bias.view(-1, heads).T
