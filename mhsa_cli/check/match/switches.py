"""The switches of a block: optional arguments that turn a mask, a rotation, dropout or a bias on or off."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple
from unittest import mock

from torch import Tensor, nn

from mhsa_cli.check.call.block import adapt
from mhsa_cli.check.call.constructor_args import AnyConfig, argument_sets
from mhsa_cli.check.call.name_lexicon import BlockSizes, input_kind, signature_of, size_kind
from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.evidence import has_mask, has_rotation
from mhsa_cli.check.match.context import SEED, CallContext
from mhsa_cli.check.roles import is_bias

MOST = 12  # switches that are thrown
RATE = 0.5  # where an argument may be that of a dropout; kept only if it is
# Optional arguments that say how a block is called or what it returns, not what it computes.
KEPT = ("weights", "average", "training", "batch_first", "device", "dtype", "seed", "n_layers", "vocab_size")


class Features(NamedTuple):
    """What a block has: a mask or a rotation that its code shows, the rates of its dropout, and its biases."""

    mask: bool
    rotation: bool
    dropout: frozenset[float]
    biases: frozenset[str]


def features(c: CallContext) -> Features:
    """Find what a block has."""
    biases = frozenset(slot.path for slot in c.slots if is_bias(slot.path))
    return Features(has_mask(c.called, c.hides_scores), has_rotation(c.called), _dropout_rates(c), biases)


def switched(base: CallContext, sizes: BlockSizes, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Throw one switch at a time; yield the arguments of each that builds and gives the block other features."""
    before = features(base)
    for number, (name, value) in enumerate(chain(_of_construction(base), _of_call(base))):
        if number == MOST:
            return
        arguments = {**given, name: value}
        with suppress(Exception, SystemExit):
            block, instance = adapt(base.block.source, sizes, arguments)
            thrown = CallContext(block, instance, block.call_form, instance.sizes.n_heads, instance.draw(SEED))
            after = features(thrown)
            if after != before and (value != RATE or RATE in after.dropout):
                yield arguments


def _dropout_rates(c: CallContext) -> frozenset[float]:
    """Rates of the dropout that a call in training draws, without those of zero."""
    rates, dropout, kernel = set[float](), nn.functional.dropout, nn.functional.scaled_dot_product_attention

    def noted(x: Tensor, p: float = 0.5, *args: Any, **named: Any) -> Tensor:
        rates.add(float(p))
        return dropout(x, p, *args, **named)

    def attend(*args: Any, **named: Any) -> Tensor:
        rates.add(float(args[4] if len(args) > 4 else named.get("dropout_p", 0.0)))
        return kernel(*args, **named)

    module = c.instance.module
    if module is None:
        return frozenset()
    with (
        mock.patch.object(nn.functional, "dropout", noted),
        mock.patch.object(nn.functional, "scaled_dot_product_attention", attend),
        suppress(Exception, SystemExit),
    ):
        module.train()
        c.run(c.x)
    module.eval()
    return frozenset(rates - {0.0})


def _of_construction(c: CallContext) -> Iterator[tuple[str, Any]]:
    """List optional arguments of the constructor and of its config, each with another value."""
    attention, arguments = c.block.source.attention, c.instance.arguments
    for parameter in signature_of(attention).parameters.values() if arguments else ():
        passed = arguments.get(parameter.name, parameter.default)
        if dataclasses.is_dataclass(passed) and not isinstance(passed, type):
            for field in dataclasses.fields(passed):
                yield from _others(c, field.name, getattr(passed, field.name, None), str(field.type))
        elif isinstance(passed, AnyConfig):
            for name, value in list(passed.asked.items()):
                yield from _others(c, name, value, "")
        elif parameter.default is not parameter.empty:
            yield from _others(c, parameter.name, passed, str(parameter.annotation))


def _of_call(c: CallContext) -> Iterator[tuple[str, Any]]:
    """List the switches that the call takes."""
    for name, parameter in signature_of(c.instance.call).parameters.items():
        if isinstance(parameter.default, bool):
            yield from _others(c, name, c.call_form.fixed.get(name, parameter.default), "")


def _others(c: CallContext, name: str, value: Any, annotation: str) -> Iterator[tuple[str, Any]]:
    """Other values of an argument that may be a switch."""
    kind = size_kind(name)
    if kind in KEPT or input_kind(name) in KEPT:
        return
    if isinstance(value, bool):
        yield name, not value
    elif kind == "theta" and value is None:
        yield name, 10000.0
    elif kind == "causal" and value is None:
        yield name, True
    elif (kind == "" and isinstance(value, int | float) and value == 0) or (kind in ("", "dropout") and value is None):
        yield name, RATE
    if value is None and (rotation := _rotation(c, name, annotation)) is not None:
        yield name, rotation


def _rotation(c: CallContext, name: str, annotation: str) -> nn.Module | None:
    """Make the user's own rotation, for an argument that is annotated with its class or has a name of one."""
    namespace, sizes = c.block.source.namespace, c.instance.sizes
    own = {key: one for key, one in namespace.items() if isinstance(one, type) and issubclass(one, nn.Module)}
    named = [one for key, one in own.items() if re.search(rf"\b{key}\b", annotation)]
    if not named and (syntax.ROTATION.search(name) or syntax.ANGLE.search(name)):
        named = [one for key, one in own.items() if syntax.ROTATION.search(key)]
    head = replace(sizes, d_model=sizes.d_head, n_heads=1)
    for one in named:
        with suppress(Exception, SystemExit):
            return one(**next(argument_sets(signature_of(one), head, {}, namespace)))
    return None
