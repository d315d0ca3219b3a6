"""Infer constructor arguments: sizes by their names, configs of any kind, and the arguments that the user gave."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from mhsa_cli.check.call.name_lexicon import BlockSizes, normalized, signature_of, size_kind
from mhsa_cli.check.sentences import make_note
from mhsa_cli.records.check import Note

# Settings without effect on attention itself: their names, normalized, and a usual value.
_SETTINGS: tuple[tuple[str, Any], ...] = (
    ("initrange initializerrange initstd initializerstd std initscale", 0.02),
    ("layernormeps layernormepsilon normeps rmsnormeps eps epsilon lneps", 1e-5),
    ("debug verbose usecache flash useflash flashattention useflashattention useflashattn outputattentions "
     "outputhiddenstates addcrossattention crossattention reorderandupcastattn gradientcheckpointing "
     "scaleattnbyinverselayeridx qknorm useqknorm qklayernorm tracing compile gate usegate", False),
    ("rotarypct rotarypercentage partialrotaryfactor ropepct ropefraction", 1.0),
    ("scaleattnweights usescale scaleattn useattnscale", True),
    ("ropescaling slidingwindow softcap attnlogitsoftcapping logitsoftcap attnlogitcap", None),
    ("attnimplementation", "eager"), ("positionembeddingtype", "absolute"),
    ("dtype torchdtype paramdtype", torch.float32),
)  # fmt: skip
SETTINGS = {name: value for names, value in _SETTINGS for name in names.split()}
# Kinds of sizes and settings whose own default is kept.
KEEP_DEFAULT = ("bias", "device", "dtype", "theta", "seed", "n_layers", "vocab_size")
PER_HEAD_WIDTHS = ("doutkq", "doutqk", "doutq", "doutk", "doutv")  # beside a number of heads: the width of each
CONFIG_NAMES = ("config", "cfg", "args", "hparams", "params", "configuration", "conf", "c", "settings", "modelargs",
                "opt")  # fmt: skip
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
SIZES = ("d_model", "n_heads", "d_head", "seq_len")  # what a parameter may be whose name says nothing
# Names that many things have.
VAGUE = ("b", "d", "c", "e", "h", "t", "l", "hs", "dim", "dims", "size", "width", "hidden", "units", "features",
         "channels")  # fmt: skip
Given = Mapping[str, Any]  # the arguments that the user gave
Roles = Callable[..., list[str]]  # kinds of sizes that a parameter, or a setting of a config, may be by its use


class MissingSettingError(KeyError):
    """A config was asked for a setting whose name says nothing about its value."""


class AnyConfig(dict[str, Any]):
    """A config that has every usual setting, as an attribute and as an item."""

    def __init__(self, sizes: BlockSizes, given: Given, roles: Roles) -> None:
        super().__init__(given)
        self._sizes, self._roles = sizes, roles
        self.asked: dict[str, Any] = dict(given)  # the settings that were read

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and normalized(name) not in SETTINGS:
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"the config has no {name!r}") from error

    def __missing__(self, name: str) -> Any:
        kind = size_kind(name) or next(iter(self._roles(name)), "")
        if not kind and normalized(name) not in SETTINGS:
            raise MissingSettingError(name)
        self.asked[name] = SETTINGS[normalized(name)] if normalized(name) in SETTINGS else _of_kind(self._sizes, kind)
        return self.asked[name]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        known = size_kind(name) not in ("", "n_kv_heads") or normalized(name) in SETTINGS
        return known or dict.__contains__(self, name)

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        return self[name] if name in self else default  # noqa: SIM401 (it would call itself)


def argument_sets(
    signature: inspect.Signature, sizes: BlockSizes, given: Given, namespace: Mapping[str, Any],
    roles: Roles = lambda *_: [],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """List the possible arguments of a constructor, the likeliest first; of other sizes, in the same order."""
    parameters = {n: p for n, p in signature.parameters.items() if p.kind not in VARIADIC}
    values: dict[str, list[Any]] = {}
    for name, parameter in parameters.items():
        known = [given[name]] if name in given else _possible_values(
            parameter, sizes, given, namespace, len(signature.parameters), roles
        )  # fmt: skip
        values |= {name: found} if (found := list(known)) else {}
    if {"n_heads", "d_model"} <= {size_kind(name) for name in signature.parameters}:
        widths = [name for name in values if normalized(name) in PER_HEAD_WIDTHS and name not in given]
        values |= {name: [sizes.d_head] for name in widths}
    takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    always = dict(given) if takes_all else {}
    first = {name: found[0] for name, found in values.items()} | always
    yield first
    yield from ({**first, name: value} for name, found in values.items() for value in found[1:])
    required = {n: v for n, v in first.items() if n in given or parameters[n].default is inspect.Parameter.empty}
    if required != first:
        yield required
    several = (at for at in _by_deviation([len(found) for found in values.values()]) if sum(map(bool, at)) > 1)
    for at in several:
        yield {name: found[index] for (name, found), index in zip(values.items(), at, strict=True)} | always
    for name in (name for name in values if normalized(name) in VAGUE and name not in given):
        yield from ({**first, name: sizes.of(kind)} for kind in SIZES if kind != size_kind(name))


def _by_deviation(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """List the choices of one index each, those that deviate least from the first ones first."""

    def choices(total: int, left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if not left:
            yield from [()] if not total else []
            return
        for index in range(min(total + 1, left[0])):
            yield from ((index, *rest) for rest in choices(total - index, left[1:]))

    for total in range(sum(lengths) - len(lengths) + 1):
        yield from choices(total, lengths)


def _possible_values(
    parameter: inspect.Parameter, sizes: BlockSizes, given: Given, namespace: Mapping[str, Any], count: int,
    roles: Roles,
) -> Iterator[Any]:  # fmt: skip
    required = parameter.default is parameter.empty
    note = _annotation(parameter, namespace)
    if isinstance(note, type) and dataclasses.is_dataclass(note):
        yield _fill_dataclass(note, sizes, given, partial(roles, parameter.name))
        return
    kind = size_kind(parameter.name)
    if normalized(parameter.name) in CONFIG_NAMES and (count == 1 or kind != "d_model"):
        yield AnyConfig(sizes, given, partial(roles, parameter.name))
        return
    if kind in KEEP_DEFAULT and not required:
        return
    if kind == "n_kv_heads" and not required:
        if isinstance(parameter.default, int):  # it may not divide our number of heads
            yield sizes.of(kind)
    elif kind == "causal" and isinstance(parameter.default, bool):
        yield True
    elif kind == "dropout":
        if required or isinstance(parameter.default, int | float):
            yield sizes.dropout
        if required:
            yield nn.Dropout(sizes.dropout)
    elif kind == "max_batch_size":
        if required or isinstance(parameter.default, int):  # None: no cache
            yield sizes.of(kind)
    elif kind == "batch_first" or (kind and (required or kind in ("d_model", "n_heads", "seq_len", "d_out"))):
        yield sizes.of(kind)
        if kind == "d_head":  # some call d_k what is the width, or the number of heads
            yield from (sizes.d_model, sizes.n_heads)
    elif required and normalized(parameter.name) in SETTINGS:
        yield SETTINGS[normalized(parameter.name)]
    elif required and note in (bool, "bool"):
        yield from (False, True)
    elif required and note in (float, "float"):
        yield 0.0
    elif required:
        yield from _guesses(parameter, sizes, roles(parameter.name))


def _guesses(parameter: inspect.Parameter, sizes: BlockSizes, kinds: Sequence[str]) -> Iterator[Any]:
    """List values for a parameter whose name says nothing: what its use shows, nothing, or any size."""
    yield from (sizes.of(kind) for kind in kinds if kind != "switch")
    if parameter.annotation not in (int, "int"):
        yield from (False, True) if kinds == ["switch"] else (None, False)
    yield from (sizes.of(kind) for kind in SIZES if kind not in kinds)


def _fill_dataclass(config: type, sizes: BlockSizes, given: Given, roles: Roles) -> Any:
    values: dict[str, Any] = {}
    for field in (field for field in dataclasses.fields(config) if field.init):
        kind = size_kind(field.name)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        no_cache = kind == "max_batch_size" and field.default is None
        if field.name in given:
            values[field.name] = given[field.name]
        elif required and not kind and normalized(field.name) not in SETTINGS:
            values[field.name] = next((_of_kind(sizes, kind) for kind in roles(field.name)), None)
        elif required or (kind and kind not in (*KEEP_DEFAULT, "n_kv_heads", "causal") and not no_cache):
            values[field.name] = sizes.of(kind) if kind else SETTINGS[normalized(field.name)]
    return config(**values)


def _of_kind(sizes: BlockSizes, kind: str) -> Any:
    return False if kind == "switch" else sizes.of(kind)


def _annotation(parameter: inspect.Parameter, namespace: Mapping[str, Any]) -> Any:
    """Annotation of a parameter, also one written as text."""
    note = parameter.annotation
    return note if isinstance(note, type) else namespace.get(str(note))


def unknown_arguments(attention: Callable[..., Any], given: Given, namespace: Mapping[str, Any]) -> list[str]:
    """List the parameters without a default and without a usual name, whose values are only guessed."""
    return [
        name
        for name, p in signature_of(attention).parameters.items()
        if p.default is p.empty and p.kind not in VARIADIC and name not in given
        and not size_kind(name) and normalized(name) not in (*CONFIG_NAMES, *SETTINGS)
        and not dataclasses.is_dataclass(_annotation(p, namespace))
    ]  # fmt: skip


def sizes_by_default(attention: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """List the numbers that a constructor or its config has by default, which may be sizes that do not go with ours."""
    if not inspect.isclass(attention):
        return []
    kept = {n: p.default for n, p in signature_of(attention).parameters.items() if n not in arguments}
    for config in arguments.values():
        if dataclasses.is_dataclass(config) and not isinstance(config, type):
            known = [one.name for one in dataclasses.fields(config) if size_kind(one.name)]
            kept |= {name: value for name, value in vars(config).items() if name not in known}
    return [name for name, value in kept.items() if type(value) is int and value > 1]


def missing_setting(error: BaseException) -> str:
    """Name of the setting that a config lacks, if that caused an error, else ""."""
    for one in (error, error.__cause__, error.__context__):
        if isinstance(one, MissingSettingError):
            return str(one.args[0])
    return ""


def arguments_for(call: Callable[..., Any], given: Given, any_name: bool = False) -> dict[str, Any]:
    """Select the user's arguments that a call takes; with `any_name`, all of them if it takes `**kwargs`."""
    parameters = signature_of(call).parameters
    takes_all = any_name and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {name: value for name, value in given.items() if takes_all or name in parameters}


def unused_arguments(attention: Any, given: Given, namespace: Mapping[str, Any], text: str) -> Iterator[Note]:
    """Note each of the user's arguments that nothing takes, with the names that exist."""
    names: list[str] = []
    calls = [attention] if inspect.isclass(attention) or inspect.isroutine(attention) else []
    if not inspect.isroutine(attention):
        calls += [getattr(attention, name) for name in ("forward", "__call__") if name in dir(attention)][:1]
    for call in calls:
        try:
            parameters = signature_of(call).parameters.values()
        except TypeError:
            return  # it may take anything
        for parameter in parameters:
            note = _annotation(parameter, namespace)
            if parameter.kind is parameter.VAR_KEYWORD:
                if call is attention:
                    return
            elif isinstance(note, type) and dataclasses.is_dataclass(note):
                names += [field.name for field in dataclasses.fields(note)]
            elif normalized(parameter.name) in CONFIG_NAMES:
                names += _settings_read(parameter.name, text)
            elif parameter.kind is not parameter.VAR_POSITIONAL and parameter.name != "self":
                names.append(parameter.name)
    for name in given:
        if name not in names:
            yield make_note("unused_argument", name=name, names=list(dict.fromkeys(names)))


def _settings_read(config: str, text: str) -> Iterator[str]:
    """List the settings that a file reads from a config: `config.n_head`, `self.config["n_head"]`."""
    for node in ast.walk(ast.parse(text)):
        holder = getattr(node, "value", None)
        if getattr(holder, "id", getattr(holder, "attr", None)) != config:
            continue
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)
