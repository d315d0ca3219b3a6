"""A second opinion on the line of a fault: the first line whose tensor leads to no right stage of the reference.

It knows no names: each torch operation of a call is recorded with the user's line and its tensors.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.search import TOLERANCE
from mhsa_cli.check.read.reference import Reference
from mhsa_cli.check.source.trace import is_users
from mhsa_cli.check.tensors import scale_of

HIDING = -1e4  # scores below it count as masked
Place = tuple[str, int]


def departure(c: Context) -> Place | None:
    """File and line of the first operation that nothing right follows from; None if it cannot be told."""
    if c.match is None or c.instance.numpy or c.call_form.unbatched or c.call_form.time_first:
        return None
    recorder = _Recorder()
    with suppress(Exception, SystemExit), recorder:
        c.instance.run(c.call_form, c.x.requires_grad_())
    stages = list(_stages(c))
    right = [any(stage.holds(one.output) for stage in stages) for one in recorder.operations]
    made_by = {id(one.output): at for at, one in enumerate(recorder.operations)}
    leads = list(right)  # whether something right follows
    for at in reversed(range(len(leads))):
        for tensor in recorder.operations[at].inputs if leads[at] else ():
            leads[made_by.get(id(tensor), at)] = True
    first = next((one for one, good in zip(recorder.operations, leads, strict=True) if not good), None)
    return first.place if first is not None and any(right) else None


@dataclass(frozen=True, slots=True)
class _Operation:
    place: Place
    inputs: Sequence[Tensor]
    output: Tensor


class _Recorder(TorchFunctionMode):
    """Records every operation whose output depends on the input, with the user's line."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[_Operation] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        result = func(*args, **(kwargs or {}))
        outputs = [t for t in _tensors(result) if t.requires_grad and t.dim() > 1]
        place = _users_line() if outputs else None
        inputs = [t for t in _tensors((args, kwargs)) if t.requires_grad]
        if place is not None:
            self.operations += [_Operation(place, inputs, t) for t in outputs if all(t is not one for one in inputs)]
        return result


def _users_line() -> Place | None:
    frame = sys._getframe(2)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


@dataclass(frozen=True, slots=True)
class _Stage:
    """A right tensor with four axes, which may be permuted, and neighbours of which may be merged.

    `allowed` are the scores that count; the others must be masked. `fused` tensors may lie in any order.
    """

    value: Tensor
    allowed: Tensor | None = None
    fused: bool = False

    def holds(self, found: Tensor) -> bool:
        """Whether a tensor is this stage."""
        if found.numel() != self.value.numel():
            return False
        found = found.detach().to(torch.float64)
        limit = TOLERANCE * scale_of(self.value)
        if self.fused:
            return bool((found.flatten().sort().values - self.value.flatten().sort().values).abs().max() <= limit)
        shape = [size for size in found.shape if size > 1]
        for order in itertools.permutations(range(self.value.dim())):
            if _merges([self.value.size(axis) for axis in order], shape):
                off = (self.value.permute(order).reshape(found.shape) - found).abs()
                if self.allowed is not None:
                    allowed = self.allowed.permute(order).reshape(found.shape)
                    if not bool((found[~allowed] < HIDING).all()):
                        continue
                    off = off[allowed]
                if bool((off <= limit).all()):
                    return True
        return False


def _merges(sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a shape comes from sizes by merging neighbours."""
    product, rest = 1, list(shape)
    for size in sizes:
        product *= size
        if rest and product == rest[0]:
            product, rest = 1, rest[1:]
    return product == 1 and not rest


def _stages(c: Context) -> Iterator[_Stage]:
    """List the right tensors of a call: projections, heads, scores, weights, and outputs."""
    assert c.match is not None
    x, spec = c.x.double(), c.right_spec
    reference = Reference(c.match.layout.roles, x, c.positions(x.size(1)))
    plain = spec._replace(rope="none")
    flat = [reference.flat(plain, role) for role in "qkv"]
    for count in (3, 2):
        for some in itertools.combinations(flat, count):
            yield _Stage(torch.cat([one.flatten() for one in some]), fused=True)
    heads = [reference.heads(one, role) for one in (plain, spec) for role in "qkv"]
    repeats = reference.H // c.match.layout.roles.k.size(0)
    heads += [one[:, ::repeats] for one in heads[1:3] + heads[4:6]] if repeats > 1 else []
    root = reference.d**0.5
    heads += [one / by for one in heads[:2] + heads[3:5] for by in (root, root**0.5)]
    scores = reference.heads(spec, "q") @ reference.heads(spec, "k").transpose(-2, -1)
    weights, context = reference.weights(spec), reference.context(spec)
    merged = reference.merge("right", context)
    outputs = [reference.out("right", merged), reference.out("without_bias", merged), reference.output(spec)]
    allowed = reference.allowed(spec.mask).expand_as(scores)
    of_heads = [*heads, scores, scores / root, weights, context]
    for one in (*of_heads, *(out.unsqueeze(1) for out in outputs)):
        yield _Stage(one)
    for one in of_heads:
        yield from (_Stage(one[:, head : head + 1]) for head in range(one.size(1)))
    for one in (scores, scores / root):
        yield _Stage(one, allowed)
        yield from (_Stage(one[:, head : head + 1], allowed[:, head : head + 1]) for head in range(one.size(1)))
