"""Find the role of each weight by measurement, whatever its name and shape: change one number, see which outputs move.

All other weights are small, so that attention is nearly uniform, and their values are known. Equal tokens then show the
numbers of the output projection (each moves one column of the output, by a row of the values' weights); tokens that
differ show those of queries and keys, and the head of each. Sizes as in
`read/weight_layouts.py`: D = d_model, H heads, G key/value heads, d = d_head, R = H * d.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

from mhsa_cli.check.match.context import CallContext
from mhsa_cli.check.match.weight_lines import ByHead, Effect, Line, by_head_of, of_head
from mhsa_cli.check.read.reference import Roles
from mhsa_cli.check.read.weight_layouts import Layout, LayoutName, index_layouts, layouts, with_more_roles
from mhsa_cli.check.read.weight_names import bias_path
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import Slot, editable_weights

SMALL = 1e-7  # factor of the other weights
NOISE = 1e-6  # effects below it, in units of SMALL, are rounding
EXACT = 1e-6  # difference of a weight and the same weight as measured
CALLS = 1500


class _Setting(NamedTuple):
    """Weights and an input at which numbers are changed one at a time, and the output."""

    numbers: Tensor
    x: Tensor
    y: Tensor


class _MeasuringError(Exception):
    """The block is none whose weights can be told apart by these measurements."""


def measured_layouts(c: CallContext) -> list[Layout]:
    """Find the layout of the weights by measurement: in both orders of q and k, none if it is not found.

    A weight that is named q, k or v has to act as such, else another name would hide that fault.
    """
    if c.instance.dtype != torch.float64 or not c.slots:
        return []
    with mock.patch.object(nn.LayerNorm, "forward", lambda self, x: x), editable_weights(c.slots) as (numbers, write):
        for token in (-1, 0):  # a mask may hide all from the last token
            with suppress(Exception, SystemExit):  # the block may raise whatever it likes
                found = [one for one in _Bench(c, numbers, write, token).layouts() if one.roles.n_heads == c.heads]
                return [_as_read(c, one) for one in found]
    return []


def _as_read(c: CallContext, measured: Layout) -> Layout:
    """Give the layout with the same numbers that names and shapes allow, which other sizes may have too, if any."""
    possible = list(layouts(c.slots, c.numbers, c.instance.sizes.d_model, c.heads))
    roles_of = index_layouts(c.slots, c.instance.sizes.d_model, c.heads, possible)
    same = (one for one in possible if one.fault is None and _same_numbers(roles_of[one.name], measured.indices))
    return next(same, measured)


def _same_numbers(a: Roles, b: Roles | None) -> bool:
    return b is not None and all(
        x is not None and y is not None and torch.equal(x, y)
        for x, y in ((a.q, b.q), (a.k, b.k), (a.v, b.v), (a.out, b.out))
    )


class _Bench:
    """A block whose numbers are changed one at a time, and one token whose output is observed."""

    def __init__(self, c: CallContext, numbers: Tensor, write: Callable[[Tensor], None], token: int) -> None:
        self.c, self.numbers, self.write, self.token = c, numbers, write, token
        self.D, self.T = c.instance.sizes.d_model, c.instance.sizes.seq_len
        counts = [math.prod(slot.value.shape) for slot in c.slots]
        self.starts = list(itertools.accumulate(counts, initial=0))
        self.matrices = [n for n, slot in enumerate(c.slots) if self._is_matrix(slot)]
        self.small = torch.zeros_like(numbers)
        for n, slot in enumerate(c.slots):
            part = slice(self.starts[n], self.starts[n + 1])
            if slot.is_norm or n in self.matrices:
                self.small[part] = numbers[part] * (1 if slot.is_norm else SMALL)
        self.lines = [lines for n in self.matrices for lines in self._lines_of(n, self.D)]
        self.calls = 0
        self.biases: dict[tuple[int, int], int] = {}

    def _is_matrix(self, slot: Slot) -> bool:
        """Whether it has an axis for the input or the output, and is no bias."""
        shape, count = tuple(slot.value.shape), math.prod(slot.value.shape)
        is_small = count < 2 * self.D or (is_bias(slot.path) and count <= 3 * self.D)
        return self.D in shape and not is_small and not slot.is_norm

    def layouts(self) -> Iterator[Layout]:
        """Give the layouts that the measurements and the names allow."""
        x = torch.eye(self.D, dtype=torch.float64).unsqueeze(1).expand(-1, self.T, -1).contiguous()
        equal = _Setting(self.small, x, self._y(self.small, x))
        out, values = self._out_and_values(equal)
        differing = self._differing(out, values)
        queries, keys = self._queries_and_keys(differing, out, values)
        self.biases = self._biases(equal, differing, {
            "query": [one.line for one in queries], "key": [one.line for one in keys], "value": values,
            "out": out})  # fmt: skip
        for q, k in ((queries, keys), (keys, queries)):
            by_head = by_head_of(of_head(q), k, values, out) or by_head_of(of_head(q), of_head(k), values, out)
            if by_head is not None and (layout := self._layout(by_head)) is not None:
                yield layout

    def _y(self, numbers: Tensor, x: Tensor) -> Tensor:
        """Output of the token: (B, D_out)."""
        self.calls += 1
        if self.calls > CALLS:
            raise _MeasuringError
        self.write(numbers)
        return self.c.y(x)[:, self.token].nan_to_num()

    def _moved(self, at: _Setting, index: Tensor | int) -> Tensor:
        """How far the output moves if 1 is added to a number, in units of SMALL: (B, D_out)."""
        numbers = at.numbers.clone()
        numbers[index] += 1.0
        return (self._y(numbers, at.x) - at.y) / SMALL

    def _lines_of(self, n: int, length: int) -> Iterator[list[Line]]:
        """List the lines of a weight along each axis of this length."""
        shape = tuple(self.c.slots[n].value.shape)
        indices = torch.arange(self.starts[n], self.starts[n + 1]).view(shape)
        for axis in (axis for axis, size in enumerate(shape) if size == length):
            rows = indices.movedim(axis, -1).reshape(-1, length)
            yield [Line(n, position, len(rows), row) for position, row in enumerate(rows)]

    def _out_and_values(self, equal: _Setting) -> tuple[list[Line], list[Line]]:
        """Find the columns of the output projection, and for each the row of the values that it multiplies."""

        def effect(index: Tensor) -> tuple[int, Tensor] | None:
            """The only column that a number moves, and how far by feature of the input; None if it is not alone."""
            moved = self._moved(equal, index)
            columns = _above(moved.abs().amax(0), 1e-4)
            return (columns[0], moved[:, columns[0]]) if len(columns) == 1 else None

        out: list[Line] = []
        effects: list[Tensor] = []
        for lines in (lines for n in self.matrices for lines in self._lines_of(n, equal.y.size(1))):
            along: bool | None = None  # whether this axis is that of the columns of the output
            for line in lines:
                first = effect(line.indices[0])
                if first is None and len(lines) <= self.D:
                    break  # so small a weight is all of the output projection, or nothing
                if first is None or first[0] != 0:
                    continue
                if along is None:
                    second = effect(line.indices[1])
                    along = second is not None and second[0] == 1 and bool((second[1] - first[1]).abs().max() < EXACT)
                if not along:
                    break
                out.append(line)
                effects.append(first[1])
        if not out or len(out) > equal.y.size(1):
            raise _MeasuringError
        return out, self._value_rows(effects)

    def _value_rows(self, effects: Sequence[Tensor]) -> list[Line]:
        """Find the weights that have the measured values, up to a factor that all have in common."""
        where = torch.cat([torch.arange(self.starts[n], self.starts[n + 1]) for n in self.matrices])
        ordered, order = self.numbers[where].sort()

        def nearest(wanted: Tensor) -> tuple[Tensor, Tensor]:
            """Position of the nearest weight, and its distance."""
            right = torch.searchsorted(ordered, wanted.contiguous()).clamp(1, len(ordered) - 1)
            at = torch.where((wanted - ordered[right - 1]).abs() < (ordered[right] - wanted).abs(), right - 1, right)
            return at, (ordered[at] - wanted).abs()

        factors = effects[0][0] / ordered  # one for each weight that the first number may be
        _, off = nearest(effects[0] / factors.unsqueeze(1))
        best = int(off.amax(1).argmin())
        at, off = nearest(torch.stack(list(effects)) / factors[best])
        if float(off.max()) > EXACT:
            raise _MeasuringError
        rows = where[order[at]]
        if any(len(set(row.tolist())) < self.D for row in rows):
            raise _MeasuringError
        at_ends = {(int(line.indices[0]), int(line.indices[-1])): line for lines in self.lines for line in lines}
        found = [at_ends.get((int(row[0]), int(row[-1]))) for row in rows]
        lines = [line for line, row in zip(found, rows, strict=True) if line is not None and line.indices.equal(row)]
        if len(lines) < len(rows):
            raise _MeasuringError
        return lines

    def _differing(self, out: Sequence[Line], values: Sequence[Line]) -> _Setting:
        """Show the scores: values of 1, no output projection, and the token b among tokens b and b + e_m, for each m.

        Only their difference counts: a query's number moves the output with every feature m, a key's with its own.
        """
        numbers = self.small.clone()
        numbers[torch.cat([line.indices for line in out])] = 0.0
        numbers[torch.cat([line.indices for line in values])] = 1.0
        numbers[torch.stack([line.indices[column] for column, line in enumerate(out)])] = 1.0
        b = torch.randn(self.D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        x = (b + torch.eye(self.D, dtype=torch.float64)).unsqueeze(1).repeat(1, self.T, 1)
        x[:, 1::2] = x[:, self.token] = b
        return _Setting(numbers, x, self._y(numbers, x))

    def _queries_and_keys(
        self, differing: _Setting, out: Sequence[Line], values: Sequence[Line]
    ) -> tuple[list[Effect], list[Effect]]:
        """Find the rows of queries and keys, and the columns of the context that each moves."""
        known = set(torch.cat([line.indices for line in (*out, *values)]).tolist())
        b = differing.x[0, self.token]

        def effect(index: Tensor) -> Tensor:
            """How far a number moves each column of the context, by feature m, beyond what all features do alike."""
            moved = self._moved(differing, index)[:, : len(out)]
            return moved - moved[2:].quantile(0.5, dim=0)

        queries: list[Effect] = []
        keys: list[Effect] = []
        for lines in self.lines:
            along: dict[bool, bool] = {}  # whether this axis is that of the input, for queries and keys
            for line in lines:
                if not known.isdisjoint(line.indices.tolist()):
                    continue
                moved = effect(line.indices[0])
                size = float(moved.abs().max())
                if not NOISE < size < 1 / NOISE:  # a gate moves far more
                    continue
                features = _above(moved.abs().amax(1), 1e-3)
                is_query = len(features) > 1
                if is_query not in along:
                    other = effect(line.indices[1])
                    along[is_query] = _above(other.abs().amax(1), 1e-3) == [1]
                    if is_query:
                        off = (other - moved * b[1] / b[0])[2:]  # a softmax over the queries moves 0 and 1 otherwise
                        along[is_query] = float(off.abs().max()) < 1e-3 * max(size, 1e-3)
                if not along[is_query] or (not is_query and features != [0]):
                    break
                by_column = moved.abs().amax(0)
                columns = [tuple(_above(by_column, share)) for share in (1e-3, 0.5)]
                (queries if is_query else keys).append(Effect(line, *columns))
        return queries, keys

    def _biases(
        self, equal: _Setting, differing: _Setting, roles: Mapping[str, Sequence[Line]]
    ) -> dict[tuple[int, int], int]:
        """Find the bias of each line of q, k and v, by name, else by what it moves; that of the keys moves nothing.

        The output's bias belongs to its weight as a whole: its position is -1, and the index that of its first number.
        """
        vectors = [n for n, slot in enumerate(self.c.slots) if n not in self.matrices and not slot.is_norm]
        at = {self.c.slots[n].path: n for n in vectors}
        sizes = {n: self.starts[n + 1] - self.starts[n] for n in vectors}
        found: dict[tuple[int, int], int] = {}
        named = set[int]()
        for role, lines in roles.items():
            for line in lines:
                bias = at.get(bias_path(self.c.slots[line.slot].path, at))
                if bias is not None and sizes[bias] == (len(line.indices) if role == "out" else line.n_lines):
                    position = -1 if role == "out" else line.position
                    found[line.slot, position] = self.starts[bias] + max(0, position)
                    named.add(bias)
        for n in vectors:
            role = "" if n in named else self._role_of_vector(n, equal, differing)
            lines = sorted(roles.get(role, ()), key=lambda line: (line.slot, line.position))
            if role == "out" and sizes[n] == len(lines[0].indices):
                found.setdefault((lines[0].slot, -1), self.starts[n])
            elif role and sizes[n] == len(lines):
                for number, line in enumerate(lines):
                    found.setdefault((line.slot, line.position), self.starts[n] + number)
            elif role and lines and sizes[n] == lines[0].n_lines:  # of a fused weight
                for position in range(sizes[n]):
                    found.setdefault((lines[0].slot, position), self.starts[n] + position)
        return found

    def _role_of_vector(self, n: int, equal: _Setting, differing: _Setting) -> str:
        """What the first number of a vector moves: one output, all outputs, those that depend on scores, or none."""
        moved = self._moved(equal, self.starts[n]).abs().amax(0)
        if float(moved.max()) > NOISE:
            return "out" if len(_above(moved, 1e-4)) == 1 else "value"
        return "query" if float(self._moved(differing, self.starts[n]).abs().max()) > NOISE else "key"

    def _layout(self, of: ByHead) -> Layout | None:
        """Make the layout, unless a weight named q, k or v acts as another of them."""
        paths: dict[str, str] = {}
        for role, rows in zip(("q", "k", "v", "out"), of, strict=True):
            names = list(dict.fromkeys(self.c.slots[line.slot].path for lines in rows for line in lines))
            if any(role_of(name) in {"q", "k", "v"} - {role} for name in names):
                return None
            paths[role] = names[0] if len(names) == 1 else re.sub(r"\d+", "#", names[0])
        sources = tuple(dict.fromkeys(paths[role] for role in "qkv"))
        name = LayoutName("measured", sources, ("linear", paths["out"]))
        (q, q_bias), (k, k_bias), (v, v_bias) = map(self._rows, (of.q, of.k, of.v))
        columns = torch.stack([line.indices for lines in of.out for line in lines], 1)
        indices = Roles(q, k, v, q_bias, k_bias, v_bias, columns, self._out_bias(of.out))
        return Layout(name, self._values(indices), paths, named=False, indices=indices)

    def _rows(self, by_head: Sequence[Sequence[Line]]) -> tuple[Tensor, Tensor | None]:
        """Indices of q, k or v (heads, d, D), and of its bias (heads, d)."""
        weight = torch.stack([torch.stack([line.indices for line in rows]) for rows in by_head])
        biases = [[self.biases.get((line.slot, line.position)) for line in rows] for rows in by_head]
        if any(bias is None for rows in biases for bias in rows):
            return weight, None
        return weight, torch.tensor(biases)

    def _out_bias(self, by_head: Sequence[Sequence[Line]]) -> Tensor | None:
        """Indices of the output's bias; (n, D_out) if its weights are n, each with its own."""
        weights = sorted({line.slot for lines in by_head for line in lines})
        starts = [self.biases[n, -1] for n in weights if (n, -1) in self.biases]
        width = len(by_head[0][0].indices)
        return torch.stack([torch.arange(start, start + width) for start in starts]) if starts else None

    def _values(self, at: Roles) -> Roles:
        """The numbers at the indices of each role."""

        def of(indices: Tensor | None) -> Tensor | None:
            return None if indices is None else self.numbers[indices]

        out_bias = None if at.out_bias is None else self.numbers[at.out_bias].sum(0)
        q, k, v = (self.numbers[indices] for indices in (at.q, at.k, at.v))
        roles = Roles(q, k, v, of(at.q_bias), of(at.k_bias), of(at.v_bias), of(at.out), out_bias)
        return with_more_roles(roles, self.c.slots, self.c.numbers, self.D, ())


def _above(sizes: Tensor, share: float) -> list[int]:
    """Where sizes are above a share of the largest, and above rounding."""
    return (sizes > max(NOISE, share * float(sizes.max()))).nonzero().flatten().tolist()
