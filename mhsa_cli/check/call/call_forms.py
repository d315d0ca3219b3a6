"""The ways in which a block may be called: what each parameter of its call may be, the likeliest first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import Any

from mhsa_cli.check.call.call_plan import ANGLES, Plan
from mhsa_cli.check.call.name_lexicon import INPUTS, SIZES, kind_of, plain, signature_of
from mhsa_cli.check.sentences import CallError, noted
from mhsa_cli.records.check import Note

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
# Numbers that say where in a longer row, or in which layer, a call is: zero for a row that stands alone.
WHERE = re.compile(r"start|offset|pos|idx|index|step|layer|past|len|cache|count|shift|time|iter|epoch")
FIRST_IS_ZERO = ("startpos", "offset", "startposition", "posoffset", "positionoffset", "startidx", "pastlen")
MASKS = re.compile(r"mask|pad|lens?$|length|segment|document|docids")


@dataclass
class _Reading:
    """What the parameters of a call were taken for."""

    inputs: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    fixed: list[tuple[str, Any]] = field(default_factory=list)
    lengths: list[tuple[str, str]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    angles: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # required, of no known name: None is tried, then x
    zero: tuple[str, bool] | None = None  # required positions that may be a number, and whether that comes first


def plans(call: Callable[..., Any], supplied: Collection[str], turning: bool) -> Iterator[Plan]:
    """List the ways to call without a mask, the likeliest first; parameters that are `supplied` elsewhere are left out.

    Positions that may be left out are given only to what is known to be `turning`.

    Raises: CallError if it takes no input.
    """
    parameters = signature_of(call).parameters
    names = [p for p in parameters.values() if p.kind not in VARIADIC]
    read = _Reading()
    for parameter in names:
        if parameter.name not in supplied:
            _take(parameter, read)
    if not read.inputs:
        var = [p for p in parameters.values() if p.kind == p.VAR_POSITIONAL]
        if not names and not var:
            raise CallError("no_input")
        read.inputs = [""] if var else [names[0].name]
    base = Plan(tuple(read.inputs), tuple(read.fixed), mask_name=read.kinds.get("mask", ""),
                weights_name=read.kinds.get("weights", ""), positions_name=read.kinds.get("positions", ""),
                memory=tuple(read.memory), lengths=tuple(read.lengths))  # fmt: skip
    shapes = ["(T)", "(B, T)", "(1, T)"] if base.positions_name else [""]
    if base.positions_name and parameters[base.positions_name].default is not Parameter.empty:
        shapes = [*shapes, ""] if turning else [""]
    elif base.positions_name:
        base = replace(base, needs_positions=True)
    if read.angles:
        base = replace(base, needs_positions=True, angle_names=tuple(read.angles))
    bases = [base]
    if read.zero is not None:
        name, first = read.zero
        at_zero = replace(base, positions_name="", needs_positions=bool(read.angles), fixed=(*base.fixed, (name, 0)))
        bases = [at_zero, base] if first else [base, at_zero]
    for one in list(bases) if read.unknown else ():  # x in the place of None
        known = tuple(fixed for fixed in one.fixed if fixed[0] not in read.unknown)
        memory = (*one.memory, *read.unknown)
        bases.append(replace(one, inputs=(*one.inputs, *read.unknown), memory=memory, fixed=known))
    for one in bases:
        angles = ANGLES if read.angles else ("",)
        for shape, form, flat in itertools.product(shapes if one.positions_name else [""], angles, (False, True)):
            yield replace(one, positions=shape, angles=form, unbatched=flat)


def _take(parameter: Parameter, read: _Reading) -> None:
    name, kind, number = parameter.name, kind_of(parameter.name, INPUTS), number_type(parameter)
    required = parameter.default is parameter.empty
    if kind == "causal" or (kind == "mask" and (number == "bool" or isinstance(parameter.default, bool))):
        if required or isinstance(parameter.default, bool):
            read.fixed.append((name, True))  # a switch: what masks by it is graded masking
    elif kind == "average":
        read.fixed.append((name, False))
    elif number or isinstance(parameter.default, int | float):
        _take_number(parameter, kind, number, required, read)
    elif kind in ("mask", "positions", "weights"):
        read.kinds.setdefault(kind, name)
        if kind == "mask" and required:
            read.fixed.append((name, None))
        elif kind == "positions" and required:
            read.zero = (name, plain(name) in FIRST_IS_ZERO)
    elif not required:
        if kind in ("k", "v") and read.inputs and kind_of(read.inputs[0], INPUTS) == "q":
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
    elif plain(name) in FIRST_IS_ZERO:
        read.fixed.append((name, 0))
    else:
        read.fixed.append((name, None))
        read.unknown.append(name)


def _take_number(parameter: Parameter, kind: str, number: str, required: bool, read: _Reading) -> None:
    """Take a parameter that is a number and no tensor, by its annotation or its default."""
    name = parameter.name
    if kind == "weights":
        read.kinds[kind] = name
    elif not required:
        return
    elif (size := kind_of(name, SIZES)) in ("batch_size", "seq_len") and number == "int":
        read.lengths.append((name, size))
    elif number == "bool":
        read.fixed.append((name, False))
    elif number == "int":
        read.fixed.append((name, 0 if kind == "positions" or WHERE.search(plain(name)) else None))
    elif number == "float":
        known = {"drop": 0.0, "eps": 1e-5, "temp": 1.0}
        read.fixed.append((name, next((value for part, value in known.items() if part in plain(name)), None)))


def number_type(parameter: Parameter) -> str:
    """Read "int", "float" or "bool" from an annotation that says so, also as text or with None; "" for any other."""
    note = parameter.annotation
    text = note.__name__ if isinstance(note, type) else str(note).replace("typing.", "")
    found = re.fullmatch(r"(?:Optional\[)?(int|float|bool)\]?(?:\s*\|\s*None)?", text.strip())
    return found[1] if found else ""


def untested(call: Callable[..., Any], plan: Plan, supplied: Collection[str], told: str) -> Iterator[Note]:
    """Name the masks and lengths that a call may be given and is not; what is `told` already is left out."""
    given = {*supplied, told, *plan.inputs, *(name for name, value in plan.fixed if value is not None),
             *(name for name, _ in (*plan.angle_names, *plan.lengths))}  # fmt: skip
    if plan.mask is not None:
        given.add(plan.mask_name)
    for name, parameter in signature_of(call).parameters.items():
        named = MASKS.search(plain(name)) or kind_of(name, INPUTS) == "mask"
        number = number_type(parameter) or isinstance(parameter.default, int | float)
        if named and not number and parameter.kind not in VARIADIC and name not in given:
            yield noted("untested", name=name)
