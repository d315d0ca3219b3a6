"""Infer the call forms of a block from the parameters of its call, the likeliest first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import Any

from mhsa_cli.check.call.call_form import ANGLES, CallForm
from mhsa_cli.check.call.name_lexicon import INPUT_NAMES, SIZE_NAMES, kind_of, normalized, signature_of
from mhsa_cli.check.sentences import CallError, make_note
from mhsa_cli.records.check import Note

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
# Integers that give an offset or a layer: zero for a sequence that stands alone.
OFFSETS = re.compile(r"start|offset|pos|idx|index|step|layer|past|len|cache|count|shift|time|iter|epoch")
ZERO_FIRST = ("startpos", "offset", "startposition", "posoffset", "positionoffset", "startidx", "pastlen")
MASKS = re.compile(r"mask|pad|lens?$|length|segment|document|docids")
FLOATS = {"drop": 0.0, "eps": 1e-5, "temp": 1.0}  # part of a name -> value


@dataclass
class _Parameters:
    """The parameters of a call by their use."""

    inputs: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    fixed: list[tuple[str, Any]] = field(default_factory=list)
    lengths: list[tuple[str, str]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    angles: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # required, with unknown names: None is tried, then x
    zero: tuple[str, bool] | None = None  # required positions that may be a number, and whether 0 is tried first


def call_forms(call: Callable[..., Any], supplied: Collection[str], mentions_rope: bool) -> Iterator[CallForm]:
    """List the call forms without a mask, the likeliest first; `supplied` parameters get their value elsewhere.

    Optional positions are passed only to a block that `mentions_rope`.

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
    base = CallForm(tuple(read.inputs), tuple(read.fixed), mask_name=read.kinds.get("mask", ""),
                    weights_name=read.kinds.get("weights", ""), positions_name=read.kinds.get("positions", ""),
                    memory=tuple(read.memory), lengths=tuple(read.lengths))  # fmt: skip
    shapes = ["(T)", "(B, T)", "(1, T)"] if base.positions_name else [""]
    if base.positions_name and parameters[base.positions_name].default is not Parameter.empty:
        shapes = [*shapes, ""] if mentions_rope else [""]
    elif base.positions_name:
        base = replace(base, needs_positions=True)
    if read.angles:
        base = replace(base, needs_positions=True, angle_names=tuple(read.angles))
    bases = [base]
    if read.zero is not None:
        name, first = read.zero
        at_zero = replace(base, positions_name="", needs_positions=bool(read.angles), fixed=(*base.fixed, (name, 0)))
        bases = [at_zero, base] if first else [base, at_zero]
    for one in list(bases) if read.unknown else ():  # x instead of None
        fixed = tuple(pair for pair in one.fixed if pair[0] not in read.unknown)
        memory = (*one.memory, *read.unknown)
        bases.append(replace(one, inputs=(*one.inputs, *read.unknown), memory=memory, fixed=fixed))
    for one in bases:
        angles = ANGLES if read.angles else ("",)
        for shape, form, unbatched in itertools.product(shapes if one.positions_name else [""], angles, (False, True)):
            yield replace(one, positions=shape, angles=form, unbatched=unbatched)


def _sort(parameter: Parameter, read: _Parameters) -> None:
    name, kind, number = parameter.name, kind_of(parameter.name, INPUT_NAMES), number_type(parameter)
    required = parameter.default is parameter.empty
    if kind == "causal" or (kind == "mask" and (number == "bool" or isinstance(parameter.default, bool))):
        if required or isinstance(parameter.default, bool):
            read.fixed.append((name, True))  # a switch for the causal mask
    elif kind == "average":
        read.fixed.append((name, False))
    elif number or isinstance(parameter.default, int | float):
        _sort_number(parameter, kind, number, required, read)
    elif kind in ("mask", "positions", "weights"):
        read.kinds.setdefault(kind, name)
        if kind == "mask" and required:
            read.fixed.append((name, None))
        elif kind == "positions" and required:
            read.zero = (name, normalized(name) in ZERO_FIRST)
    elif not required:
        if kind in ("k", "v") and read.inputs and kind_of(read.inputs[0], INPUT_NAMES) == "q":
            read.inputs.append(name)
    elif kind in ("freqs", "cos", "sin"):
        read.angles.append((name, kind))
    elif kind in ("x", "q", "k", "v") or not read.inputs:  # the first one, whatever its name
        read.inputs.append(name)
    elif kind == "memory":
        read.inputs.append(name)
        read.memory.append(name)
    elif kind == "training":
        read.fixed.append((name, False))
    elif normalized(name) in ZERO_FIRST:
        read.fixed.append((name, 0))
    else:
        read.fixed.append((name, None))
        read.unknown.append(name)


def _sort_number(parameter: Parameter, kind: str, number: str, required: bool, read: _Parameters) -> None:
    """Sort a parameter that is a number by its annotation or its default."""
    name = parameter.name
    if kind == "weights":
        read.kinds[kind] = name
    elif not required:
        return
    elif (size := kind_of(name, SIZE_NAMES)) in ("batch_size", "seq_len") and number == "int":
        read.lengths.append((name, size))
    elif number == "bool":
        read.fixed.append((name, False))
    elif number == "int":
        read.fixed.append((name, 0 if kind == "positions" or OFFSETS.search(normalized(name)) else None))
    elif number == "float":
        read.fixed.append((name, next((value for part, value in FLOATS.items() if part in normalized(name)), None)))


def number_type(parameter: Parameter) -> str:
    """Read "int", "float" or "bool" from an annotation, also one as text or with None; "" for any other."""
    note = parameter.annotation
    text = note.__name__ if isinstance(note, type) else str(note).replace("typing.", "")
    found = re.fullmatch(r"(?:Optional\[)?(int|float|bool)\]?(?:\s*\|\s*None)?", text.strip())
    return found[1] if found else ""


def untested(call: Callable[..., Any], call_form: CallForm, supplied: Collection[str], noted: str) -> Iterator[Note]:
    """Note the masks and lengths that a call takes and is not given, except one already `noted`."""
    passed = {*supplied, noted, *call_form.inputs, *(name for name, value in call_form.fixed if value is not None),
              *(name for name, _ in (*call_form.angle_names, *call_form.lengths))}  # fmt: skip
    if call_form.mask is not None:
        passed.add(call_form.mask_name)
    for name, parameter in signature_of(call).parameters.items():
        is_mask = MASKS.search(normalized(name)) or kind_of(name, INPUT_NAMES) == "mask"
        is_number = number_type(parameter) or isinstance(parameter.default, int | float)
        if is_mask and not is_number and parameter.kind not in VARIADIC and name not in passed:
            yield make_note("untested", name=name)
