"""The bases that a rotation may have, 10000 in theta ** (-2i / d): numbers of the block and of its code that ran."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from mhsa_cli.check.call.name_lexicon import signature_of
from mhsa_cli.check.locate import syntax
from mhsa_cli.check.match.context import CallContext
from mhsa_cli.check.read.reference import Spec

BASE = re.compile(r"theta|base", re.IGNORECASE)
LEAST, MOST = 20, 1e10  # numbers that may be a base
MANY = 8  # that are tried
# Bases with which the rates of 10000 and a wrong exponent are the same: i / d and 4i / d.
OF_WRONG_EXPONENTS = (100.0, 1e8)


def rotation_bases(c: CallContext) -> list[str]:
    """List the possible bases, the likeliest first: those with a name, the usual one, then other numbers."""
    usual = float(Spec().rates)
    if c.call_form.angles:
        return [Spec().rates]
    named = [value for name, value in _kept(c) if BASE.search(name)]
    written = sorted((float(number) for node in c.called.everything if isinstance(node, ast.Constant)
                      and (number := syntax.number(node)) is not None), reverse=True)  # fmt: skip
    if usual in written:
        written = [usual, *(value for value in written if value not in OF_WRONG_EXPONENTS)]
    found = dict.fromkeys([*named, *written, usual])
    return [f"{value:.10g}" for value in found if LEAST <= value <= MOST][:MANY]


def _kept(c: CallContext) -> Iterator[tuple[str, float]]:
    """Numbers that the instance keeps, in a config too, and the defaults of its arguments, with their names."""
    module = c.instance.module
    parts: list[Any] = [c.instance.obj] if module is None else list(module.modules())
    for part in parts:
        kept = dict(vars(part)) if hasattr(part, "__dict__") else {}
        for name, value in list(kept.items()):
            if name.lower().endswith(("config", "cfg", "args")) and hasattr(value, "__dict__"):
                kept |= vars(value)
        yield from _only_numbers(kept)
    attention = c.block.source.attention
    if callable(attention):
        yield from _only_numbers({name: one.default for name, one in signature_of(attention).parameters.items()})


def _only_numbers(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
