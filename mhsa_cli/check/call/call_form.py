"""How an instance is called: its inputs, its mask, and which part of its return value is the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mhsa_cli.check.call.name_lexicon import BlockSizes
from mhsa_cli.check.sentences import MASKS, CallError


@dataclass(frozen=True, slots=True)
class Mask:
    """A way to write the causal mask: the meaning of its values, a key of `sentences.MASKS`, and its axes."""

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
ANGLES = ("(T, d/2)", "(T, d) in halves", "(T, d) in pairs")


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call: the parameters for x, the mask and its form, positions and their shape, and fixed values.

    Of the `inputs`, those in `memory` are cross-attention inputs, which get x as well.
    """

    inputs: tuple[str, ...]
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

    def describe(self) -> str:
        """Write the call in words."""
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
class CallResult:
    """The output y (B, T, D) of a call, and the attention weights (B, H, T, T) if they were returned."""

    y: Tensor
    weights: Tensor | None


def with_masks(call_form: CallForm) -> Iterator[CallForm]:
    """List the ways to pass the causal mask to a call that takes one."""
    masks = [Mask(meaning, axes) for axes in AXES for meaning in MEANINGS] if call_form.mask_name else []
    if "len" in call_form.mask_name:
        masks.append(Mask("counts", "(B, T)"))
    for mask in masks:
        yield replace(call_form, mask=mask, fixed=tuple(f for f in call_form.fixed if f[0] != call_form.mask_name))


def rope_tables(call_form: CallForm, T: int, d: int, x: Tensor) -> dict[str, Tensor]:
    """Tabulate the rotations that a call takes: cosines, sines, or both as complex numbers."""
    rate = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(2 * torch.arange(T, dtype=torch.float64), rate)
    if call_form.angles == "(T, d) in halves":
        angle = torch.cat([angle, angle], -1)
    elif call_form.angles == "(T, d) in pairs":
        angle = angle.repeat_interleave(2, -1)
    real = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    tables = {"cos": angle.cos().to(x.dtype), "sin": angle.sin().to(x.dtype)}
    tables["freqs"] = torch.polar(torch.ones_like(angle), angle).to(real.to_complex())
    return {name: tables[kind] for name, kind in call_form.angle_names}


def positions_for(call_form: CallForm, T: int, B: int) -> Tensor:
    """Give the positions of a call: 0, 2, 4, ..., so that they differ from the indices of the tokens."""
    at = 2 * torch.arange(T)
    return {"(T)": at, "(B, T)": at.expand(B, T).clone(), "(1, T)": at.view(1, T)}[call_form.positions]


def invoke(
    call: Callable[..., Any], call_form: CallForm, x: Tensor, *, numpy: bool, sizes: BlockSizes, weights: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> CallResult:  # fmt: skip
    """Call with x (B, T, D). Raises: CallError if it returns no tensor; any error of the block."""
    if call_form.unbatched:
        batched = replace(call_form, unbatched=False)
        results = [invoke(call, batched, row, numpy=numpy, sizes=sizes, weights=weights, extra=extra) for row in x]
        kept = [r.weights for r in results if r.weights is not None]
        return CallResult(torch.cat([r.y for r in results]), torch.cat(kept) if len(kept) == len(x) else None)
    B, T, D = x.shape if x.dim() == 3 else (1, *x.shape)
    x = x.transpose(0, 1) if call_form.time_first else x
    convert = (lambda t: np.asarray(t.numpy())) if numpy else (lambda t: t)
    arguments: dict[str, Any] = {**(extra or {}), **dict(call_form.fixed)}
    if call_form.mask is not None:
        mask = call_form.mask.make(T, B)
        arguments[call_form.mask_name] = convert(mask.to(x.dtype) if mask.is_floating_point() else mask)
    if call_form.positions:
        arguments[call_form.positions_name] = convert(positions_for(call_form, T, B))
    if call_form.angles:
        arguments |= {name: convert(t) for name, t in rope_tables(call_form, T, sizes.d_head, x).items()}
    arguments |= {name: B if kind == "batch_size" else T for name, kind in call_form.lengths}
    if weights and call_form.weights_name:
        arguments[call_form.weights_name] = True
    inputs = {name: convert(x) for name in call_form.inputs if name}  # "" stands for *args
    raw = call(**inputs, **arguments) if inputs else call(convert(x), **arguments)
    return _result(raw, (B, T, D), sizes.n_heads, call_form.time_first)


def _result(raw: Any, shape: tuple[int, int, int], n_heads: int, time_first: bool) -> CallResult:
    """Identify output and weights by their shapes."""
    B, T, D = shape
    found = list(_tensors(raw))
    if not found:
        raise CallError("no_tensor", name="nothing" if raw is None else type(raw).__name__)
    order = (T, B) if time_first else (B, T)

    def fit(t: Tensor) -> int:
        size = tuple(t.shape)
        return (size == (*order, D)) * 4 + (size == (T, D)) * 3 + (size[:2] == order) * 2 + (t.numel() == B * T * D)

    y = max(found, key=fit)  # of several, the first
    rest = [t for t in found if t is not y]
    if y.dim() == 2 and B == 1:
        y = y.unsqueeze(0)
    if time_first and y.dim() == 3:
        y = y.transpose(0, 1)
    return CallResult(y, _attention_weights(rest, B, T, n_heads))


def _tensors(raw: Any) -> Iterator[Tensor]:
    if isinstance(raw, Tensor):
        yield raw
    elif isinstance(raw, np.ndarray):
        yield torch.from_numpy(np.ascontiguousarray(raw))
    else:
        fields = {name: getattr(raw, name) for name in getattr(raw, "__dataclass_fields__", ())}
        values = raw if isinstance(raw, Sequence) and not isinstance(raw, str) else fields.values()
        for value in raw.values() if isinstance(raw, Mapping) else values:
            yield from _tensors(value)


def _attention_weights(rest: list[Tensor], B: int, T: int, H: int) -> Tensor | None:
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
