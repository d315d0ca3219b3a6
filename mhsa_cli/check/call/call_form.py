"""How a block is called: call forms, inferred from the parameters of the call, and the parts of what it returns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mhsa_cli.check.call.call_tensors import (
    ANGLE_KINDS,
    ANGLES,
    AXES,
    LENGTHS,
    MEANINGS,
    PADDINGS,
    REAL_ANGLES,
    Angles,
    Mask,
    Padding,
)
from mhsa_cli.check.call.name_lexicon import BlockSizes, input_kind, normalized, signature_of, size_kind
from mhsa_cli.check.sentences import MASKS, CallError, make_note
from mhsa_cli.records.check import Note

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
# Integers that give an offset or a layer: zero for a sequence that stands alone.
OFFSETS = re.compile(r"start|offset|pos|idx|index|step|layer|past|len|cache|count|shift|time|iter|epoch")
ZERO_FIRST = ("startpos", "offset", "startposition", "posoffset", "positionoffset", "startidx", "pastlen")
MASK_NAMES = re.compile(r"mask|pad|lens?$|length|segment|document|docids")
FLOATS = {"drop": 0.0, "eps": 1e-5, "temp": 1.0}  # part of a name -> value


@dataclass(frozen=True, slots=True)
class CallForm:
    """A call: the parameters for x, the mask and its form, positions and their shape, and fixed values.

    Of the `inputs`, those in `memory` are cross-attention inputs, which get x as well.
    """

    inputs: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    mask: Mask | None = None
    mask_name: str = ""
    positions: str = ""
    positions_name: str = ""
    needs_positions: bool = False
    angles: Angles | None = None
    angle_names: Mapping[str, str] = field(default_factory=dict)  # name -> kind
    weights_name: str = ""
    time_first: bool = False
    unbatched: bool = False
    memory: tuple[str, ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)  # name -> kind of size
    padding: Padding | None = None
    padding_names: tuple[str, ...] = ()  # required padding masks; None is tried first

    def describe(self) -> str:
        """Write the call in words."""
        parts = [f"{name} = x, as in self-attention" if name in self.memory else name for name in self.inputs]
        parts += [f"{name}={value}" for name, value in self.fixed.items() if isinstance(value, int)]
        if self.mask is not None:
            parts.append(f"{self.mask_name} {self.mask.axes}, {MASKS[self.mask.meaning]}")
        if self.positions_name and self.positions:
            parts.append(f"{self.positions_name} {self.positions}")
        if self.padding is not None:
            parts += [f"{name} ({self.padding.axes}), nothing hidden" for name in self.padding_names]
        if self.angles is not None:
            parts += [f"{name} {self.angles.describe()}" for name in self.angle_names]
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
        yield replace(call_form, mask=mask, fixed=_without(call_form.fixed, call_form.mask_name))


def with_paddings(call_form: CallForm) -> Iterator[CallForm]:
    """List the ways to pass a padding mask that hides nothing to a call that requires one, or just some mask."""
    required = call_form.mask_name if call_form.mask_name in call_form.fixed else ""
    names = call_form.padding_names
    for passed in {names: None, (*names, required): None} if required else [names]:
        lengths = [LENGTHS] if any("len" in name for name in passed) else []
        for padding in [*lengths, *PADDINGS] if passed else []:
            fixed = _without(call_form.fixed, *passed)
            form = replace(call_form, padding=padding, padding_names=passed, fixed=fixed)
            yield replace(form, mask_name="") if required in passed else form


def angle_layouts(call_form: CallForm) -> list[CallForm]:
    """List the forms that differ from a call only in how angles are laid out, which no shape shows."""
    angles = call_form.angles
    if angles is None:
        return [call_form]
    layouts = ["halves", "pairs"] if angles.layout else [""]
    swaps = (False, True) if "cos_sin" in call_form.angle_names.values() else (False,)
    pairs = itertools.product(swaps, layouts)
    return [replace(call_form, angles=replace(angles, layout=layout, swapped=swap)) for swap, layout in pairs]


@dataclass
class _Parameters:
    """The parameters of a call by their use."""

    inputs: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    fixed: dict[str, Any] = field(default_factory=dict)
    lengths: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # kind -> name of the mask, the positions, the weights
    angles: dict[str, str] = field(default_factory=dict)
    optional_angles: dict[str, str] = field(default_factory=dict)  # passed where the call fails without
    paddings: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # required, with unknown names: None is tried, then x
    zero: tuple[str, bool] | None = None  # required positions that may be a number, and whether 0 is tried first


def call_forms(call: Callable[..., Any], supplied: Collection[str]) -> Iterator[CallForm]:
    """List the call forms without a mask, the likeliest first; `supplied` parameters get their value elsewhere.

    Optional positions are passed first; whether the block uses them is seen later.

    Raises: CallError if the call takes no input.
    """
    parameters = signature_of(call).parameters
    named = [p for p in parameters.values() if p.kind not in VARIADIC]
    read = _Parameters()
    for parameter in named:
        if parameter.name not in supplied:
            _sort(parameter, read)
    if not read.inputs:
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        if not named and not variadic:
            raise CallError("no_input")
        read.inputs = [""] if variadic else [named[0].name]
    names: dict[str, Any] = {f"{kind}_name": name for kind, name in read.names.items()}
    names["padding_names"] = tuple(read.paddings)
    base = CallForm(tuple(read.inputs), read.fixed, memory=tuple(read.memory), lengths=read.lengths, **names)
    shapes = ["(T)", "(B, T)", "(1, T)"] if base.positions_name else [""]
    if base.positions_name and parameters[base.positions_name].default is not Parameter.empty:
        shapes = [*shapes, ""]
    elif base.positions_name:
        base = replace(base, needs_positions=True)
    if read.angles:
        base = replace(base, needs_positions=True, angle_names=read.angles)
    bases = [base]
    if read.zero is not None:
        name, first = read.zero
        at_zero = replace(base, positions_name="", needs_positions=bool(read.angles), fixed={**base.fixed, name: 0})
        bases = [at_zero, base] if first else [base, at_zero]
    for one in list(bases):  # x instead of None, for all of them first
        for as_x in sorted(_subsets(read.unknown), key=len, reverse=True):
            inputs, memory = (*one.inputs, *as_x), (*one.memory, *as_x)
            bases.append(replace(one, inputs=inputs, memory=memory, fixed=_without(one.fixed, *as_x)))
    if read.optional_angles:
        bases += [replace(one, needs_positions=True, angle_names=read.optional_angles) for one in bases]
    for one in bases:
        real = REAL_ANGLES if "freqs" in one.angle_names.values() else []
        angles: list[Angles | None] = [*ANGLES, *real] if one.angle_names else [None]
        for shape, form, unbatched in itertools.product(shapes if one.positions_name else [""], angles, (False, True)):
            yield replace(one, positions=shape, angles=form, unbatched=unbatched)


def _subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """List the non-empty parts of a few names; of many, only all of them."""
    sizes = range(1, len(names) + 1) if len(names) <= 3 else [len(names)]
    return [part for size in sizes for part in itertools.combinations(names, size)]


def _without(fixed: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fixed.items() if name not in names}


def _sort(parameter: Parameter, read: _Parameters) -> None:
    name, kind, number = parameter.name, input_kind(parameter.name), number_type(parameter)
    required = parameter.default is parameter.empty
    if kind == "causal" or (kind == "mask" and (number == "bool" or isinstance(parameter.default, bool))):
        if required or isinstance(parameter.default, bool):
            read.fixed[name] = True  # a switch for the causal mask
    elif kind == "average":
        read.fixed[name] = False
    elif number or isinstance(parameter.default, int | float):
        _sort_number(parameter, kind, number, required, read)
    elif kind in ("mask", "positions", "weights"):
        read.names.setdefault(kind, name)
        if kind == "mask" and required:
            read.fixed[name] = None
        elif kind == "positions" and required:
            read.zero = (name, normalized(name) in ZERO_FIRST)
    elif not required:
        if kind in ANGLE_KINDS:
            read.optional_angles[name] = kind
        if kind in ("k", "v") and read.inputs and input_kind(read.inputs[0]) == "q":
            read.inputs.append(name)
    elif kind in ANGLE_KINDS:
        read.angles[name] = kind
    elif MASK_NAMES.search(normalized(name)):
        read.fixed[name] = None
        read.paddings.append(name)
    elif kind in ("x", "q", "k", "v") or not read.inputs:  # the first one, whatever its name
        read.inputs.append(name)
    elif kind == "memory":
        read.inputs.append(name)
        read.memory.append(name)
    elif kind == "training":
        read.fixed[name] = False
    elif normalized(name) in ZERO_FIRST:
        read.fixed[name] = 0
    else:
        read.fixed[name] = None
        read.unknown.append(name)


def _sort_number(parameter: Parameter, kind: str, number: str, required: bool, read: _Parameters) -> None:
    """Sort a parameter that is a number by its annotation or its default."""
    name = parameter.name
    if kind == "weights":
        read.names[kind] = name
    elif not required:
        return
    elif (size := size_kind(name)) in ("batch_size", "seq_len") and number == "int":
        read.lengths[name] = size
    elif number == "bool":
        read.fixed[name] = False
    elif number == "int":
        read.fixed[name] = 0 if kind == "positions" or OFFSETS.search(normalized(name)) else None
    elif number == "float":
        read.fixed[name] = next((value for part, value in FLOATS.items() if part in normalized(name)), None)


def number_type(parameter: Parameter) -> str:
    """Read "int", "float" or "bool" from an annotation, also one as text or with None; "" for any other."""
    note = parameter.annotation
    text = note.__name__ if isinstance(note, type) else str(note).replace("typing.", "")
    found = re.fullmatch(r"(?:Optional\[)?(int|float|bool)\]?(?:\s*\|\s*None)?", text.strip())
    return found[1] if found else ""


def untested(call: Callable[..., Any], call_form: CallForm, supplied: Collection[str], noted: str) -> Iterator[Note]:
    """Note the masks and lengths that a call takes and is not given, except one already `noted`."""
    fixed = {name for name, value in call_form.fixed.items() if value is not None}
    passed = {*supplied, noted, *call_form.inputs, *fixed, *call_form.angle_names, *call_form.lengths}
    if call_form.mask is not None:
        passed.add(call_form.mask_name)
    for name, parameter in signature_of(call).parameters.items():
        is_mask = MASK_NAMES.search(normalized(name)) or input_kind(name) == "mask"
        is_number = number_type(parameter) or isinstance(parameter.default, int | float)
        if is_mask and not is_number and parameter.kind not in VARIADIC and name not in passed:
            yield make_note("untested", name=name)


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
    arguments: dict[str, Any] = {**(extra or {}), **call_form.fixed}
    if call_form.mask is not None:
        mask = call_form.mask.make(T, B)
        arguments[call_form.mask_name] = convert(mask.to(x.dtype) if mask.is_floating_point() else mask)
    if call_form.positions:
        arguments[call_form.positions_name] = convert(positions_for(call_form, T, B))
    if call_form.angles is not None:
        tables = call_form.angles.tables(T, sizes.d_head, x)
        for name, kind in call_form.angle_names.items():
            table = tables[kind]
            arguments[name] = tuple(map(convert, table)) if isinstance(table, tuple) else convert(table)
    if call_form.padding is not None:
        padding = call_form.padding.make(T, B)
        padding = padding.to(x.dtype) if padding.is_floating_point() else padding
        arguments |= {name: convert(padding) for name in call_form.padding_names}
    arguments |= {name: B if kind == "batch_size" else T for name, kind in call_form.lengths.items()}
    if weights and call_form.weights_name:
        arguments[call_form.weights_name] = True
    inputs = {name: convert(x) for name in call_form.inputs if name}  # "" stands for *args
    raw = call(**inputs, **arguments) if inputs else call(convert(x), **arguments)
    return _result(raw, (B, T, D), sizes.n_heads, call_form.time_first)


def parts_of(call: Callable[..., Any], call_form: CallForm, x: Tensor) -> list[Any]:
    """Call as `invoke` does a plain form, and list the parts of what is returned, such as a cache, without those."""
    raw = call(**dict.fromkeys(call_form.inputs, x), **call_form.fixed)
    return list(raw) if isinstance(raw, tuple | list) else []


def _result(raw: Any, shape: tuple[int, int, int], n_heads: int, time_first: bool) -> CallResult:
    """Identify output and weights by their shapes."""
    B, T, D = shape
    found = [t for t in _tensors(raw) if not t.is_complex()]
    if raw is None:
        raise CallError("returned_nothing")
    if not found:
        raise CallError("no_tensor", name=type(raw).__name__)
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
