"""How a built block is called: its inputs, its mask, and what of its answer is what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mhsa_cli.check.call.name_lexicon import Sizes
from mhsa_cli.check.sentences import MASKS, CallError
from mhsa_cli.check.source.packages import as_the_user_wrote


def raised(error: BaseException) -> str:
    """Write what a block raised: its type, and the first line of what it says."""
    return (as_the_user_wrote(error).splitlines() or [type(error).__name__])[0]


@dataclass(frozen=True, slots=True)
class Mask:
    """One way of writing the causal mask: what its numbers mean, a key of `sentences.MASKS`, and the axes it has."""

    meaning: str
    axes: str

    def make(self, T: int, B: int) -> Tensor:
        """Write the mask for T tokens and B rows."""
        keep = torch.ones(T, T, dtype=torch.bool).tril()
        mask = {
            "true_attends": keep,
            "true_blocks": ~keep,
            "added": torch.zeros(T, T, dtype=torch.float64).masked_fill(~keep, -math.inf),
            "one_attends": keep.to(torch.int64),
            "one_blocks": (~keep).to(torch.int64),
            "counts": torch.arange(1, T + 1),
        }[self.meaning]
        sizes = {"B": B, "T": T, "1": 1}
        return mask.expand([sizes[axis] for axis in self.axes.strip("()").split(", ")]).clone()


MEANINGS = ("true_attends", "true_blocks", "added", "one_attends", "one_blocks")
AXES = ("(T, T)", "(1, T, T)", "(1, 1, T, T)", "(B, 1, T, T)", "(B, T, T)")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to call: the parameters that take x, the mask and its form, positions and their shape, and fixed values."""

    inputs: tuple[str, ...]  # of these `memory` is given x where another row might come
    fixed: tuple[tuple[str, Any], ...] = ()
    mask: Mask | None = None
    mask_name: str = ""
    positions: str = ""
    positions_name: str = ""
    needs_positions: bool = False
    angles: str = ""
    angle_names: tuple[tuple[str, str], ...] = ()
    weights_name: str = ""
    time_first: bool = False
    unbatched: bool = False
    memory: tuple[str, ...] = ()
    lengths: tuple[tuple[str, str], ...] = ()

    def says(self) -> str:
        """Write the call."""
        parts = [f"{name} = x, as in self-attention" if name in self.memory else name for name in self.inputs]
        parts += [f"{name}={value}" for name, value in self.fixed if isinstance(value, int)]
        if self.mask is not None:
            parts.append(f"{self.mask_name} {self.mask.axes}, {MASKS[self.mask.meaning]}")
        if self.positions_name and self.positions:
            parts.append(f"{self.positions_name} {self.positions}")
        parts += [f"{name} {self.angles}" for name, _ in self.angle_names]
        size = "(T, D)" if self.unbatched else "(T, B, D)" if self.time_first else "(B, T, D)"
        return f"({', '.join(parts)}) with x {size}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gave: y, and the attention weights (B, H, T, T) if they were among it."""

    y: Tensor
    weights: Tensor | None


def masked(plan: Plan) -> Iterator[Plan]:
    """List the ways to give the causal mask to a call that takes one."""
    masks = [Mask(meaning, axes) for axes in AXES for meaning in MEANINGS] if plan.mask_name else []
    if "len" in plan.mask_name:
        masks.append(Mask("counts", "(B, T)"))
    for mask in masks:
        yield replace(plan, mask=mask, fixed=tuple(f for f in plan.fixed if f[0] != plan.mask_name))


ANGLES = ("(T, d/2)", "(T, d) in halves", "(T, d) in pairs")


def angles_of(plan: Plan, T: int, d: int, x: Tensor) -> dict[str, Tensor]:
    """Tabulate what a call wants to rotate with: cosines, sines, or both as complex numbers."""
    rate = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(2 * torch.arange(T, dtype=torch.float64), rate)
    if plan.angles == "(T, d) in halves":
        angle = torch.cat([angle, angle], -1)
    elif plan.angles == "(T, d) in pairs":
        angle = angle.repeat_interleave(2, -1)
    real = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    tables = {"cos": angle.cos().to(x.dtype), "sin": angle.sin().to(x.dtype)}
    tables["freqs"] = torch.polar(torch.ones_like(angle), angle).to(real.to_complex())
    return {name: tables[kind] for name, kind in plan.angle_names}


def positions_of(plan: Plan, T: int, B: int) -> Tensor:
    """Give the positions of a call, every second one: a position is not its place in the row."""
    at = 2 * torch.arange(T)
    return {"(T)": at, "(B, T)": at.expand(B, T).clone(), "(1, T)": at.view(1, T)}[plan.positions]


def invoke(
    call: Callable[..., Any], plan: Plan, x: Tensor, *, numpy: bool, sizes: Sizes, weights: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Answer:  # fmt: skip
    """Call with x (B, T, D) and sort the answer. Raises: CallError without a tensor; whatever the block raises."""
    if plan.unbatched:
        rows = replace(plan, unbatched=False)
        answers = [invoke(call, rows, row, numpy=numpy, sizes=sizes, weights=weights, extra=extra) for row in x]
        kept = [a.weights for a in answers if a.weights is not None]
        return Answer(torch.cat([a.y for a in answers]), torch.cat(kept) if len(kept) == len(x) else None)
    B, T, D = x.shape if x.dim() == 3 else (1, *x.shape)
    x = x.transpose(0, 1) if plan.time_first else x
    hand = (lambda t: np.asarray(t.numpy())) if numpy else (lambda t: t)
    given: dict[str, Any] = {**(extra or {}), **dict(plan.fixed)}
    if plan.mask is not None:
        mask = plan.mask.make(T, B)
        given[plan.mask_name] = hand(mask.to(x.dtype) if mask.is_floating_point() else mask)
    if plan.positions:
        given[plan.positions_name] = hand(positions_of(plan, T, B))
    if plan.angles:
        tables = angles_of(plan, T, sizes.d_head, x)
        given |= {name: hand(table) for name, table in tables.items()}
    given |= {name: B if kind == "batch_size" else T for name, kind in plan.lengths}
    if weights and plan.weights_name:
        given[plan.weights_name] = True
    inputs = {name: hand(x) for name in plan.inputs if name}  # "" stands for *args
    raw = call(**inputs, **given) if inputs else call(hand(x), **given)
    return _sorted(raw, (B, T, D), sizes.n_heads, plan.time_first)


def _sorted(raw: Any, shape: tuple[int, int, int], n_heads: int, time_first: bool) -> Answer:
    """Tell output and weights apart by their shapes."""
    B, T, D = shape
    found = list(_tensors(raw))
    if not found:
        raise CallError("no_tensor", name="nothing" if raw is None else type(raw).__name__)
    order = (T, B) if time_first else (B, T)

    def likeness(t: Tensor) -> int:
        size = tuple(t.shape)
        return (size == (*order, D)) * 4 + (size == (T, D)) * 3 + (size[:2] == order) * 2 + (t.numel() == B * T * D)

    y = max(found, key=likeness)  # the first of those alike
    rest = [t for t in found if t is not y]
    if y.dim() == 2 and B == 1:
        y = y.unsqueeze(0)
    if time_first and y.dim() == 3:
        y = y.transpose(0, 1)
    return Answer(y, _attention(rest, B, T, n_heads))


def _tensors(raw: Any) -> Iterator[Tensor]:
    if isinstance(raw, Tensor):
        yield raw
    elif isinstance(raw, np.ndarray):
        yield torch.from_numpy(np.ascontiguousarray(raw))
    else:
        fields = {name: getattr(raw, name) for name in getattr(raw, "__dataclass_fields__", ())}
        listed = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else fields.values()
        for value in raw.values() if isinstance(raw, Mapping) else listed:
            yield from _tensors(value)


def _attention(rest: list[Tensor], B: int, T: int, H: int) -> Tensor | None:
    maps = [t for t in rest if t.dim() >= 2 and t.shape[-2:] == (T, T)]
    if not maps:
        return None
    if len(maps) == H and H > 1 and all(m.numel() == B * T * T for m in maps):
        return torch.stack([m.reshape(B, T, T) for m in maps], 1)
    found = maps[0]
    if found.dim() == 3 and found.size(0) == B * H and B > 1:
        return found.view(B, H, T, T)
    if found.dim() == 4 and found.shape[:2] == (H, B) and H != B:
        return found.transpose(0, 1)
    if found.dim() == 3 and found.size(0) == H and B == 1:
        return found.unsqueeze(0)
    return found if found.dim() == 4 else found.reshape(B, -1, T, T) if found.numel() % (B * T * T) == 0 else None
