"""Infer constructor arguments: sizes by their names, configs of any kind, and the arguments that the user gave."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
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
    ("scaleattnweights usescale scaleattn useattnscale", True),
    ("ropescaling slidingwindow softcap attnlogitsoftcapping logitsoftcap attnlogitcap", None),
    ("attnimplementation", "eager"), ("positionembeddingtype", "absolute"),
    ("dtype torchdtype paramdtype", torch.float32), ("maxbatchsize", 32),
)  # fmt: skip
SETTINGS = {name: value for names, value in _SETTINGS for name in names.split()}
# Kinds of sizes and settings whose own default is kept.
KEEP_DEFAULT = ("bias", "device", "dtype", "theta", "seed", "n_layers", "vocab_size")
PER_HEAD_WIDTHS = ("doutkq", "doutqk", "doutq", "doutk", "doutv")  # beside a number of heads: the width of each
CONFIG_NAMES = ("config", "cfg", "args", "hparams", "params", "configuration", "conf", "c", "settings", "modelargs",
                "opt")  # fmt: skip
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Given = Mapping[str, Any]  # the arguments that the user gave


class UnknownArgumentError(TypeError):
    """A parameter without a default whose name says nothing about its value."""


class MissingSettingError(KeyError):
    """A config was asked for a setting whose name says nothing about its value."""


class AnyConfig(dict[str, Any]):
    """A config that has every usual setting, as an attribute and as an item."""

    def __init__(self, sizes: BlockSizes, given: Given) -> None:
        super().__init__(given)
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and normalized(name) not in SETTINGS:
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"the config has no {name!r}") from error

    def __missing__(self, name: str) -> Any:
        kind = size_kind(name)
        if not kind and normalized(name) not in SETTINGS:
            raise MissingSettingError(name)
        return SETTINGS[normalized(name)] if normalized(name) in SETTINGS else self._sizes.of(kind)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        known = size_kind(name) not in ("", "n_kv_heads") or normalized(name) in SETTINGS
        return known or dict.__contains__(self, name)

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        return self[name] if name in self else default  # noqa: SIM401 (it would call itself)


def argument_sets(
    signature: inspect.Signature, sizes: BlockSizes, given: Given, namespace: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """List the possible arguments of a constructor, the likeliest first.

    Raises: UnknownArgumentError naming the parameter that cannot be inferred.
    """
    first: dict[str, Any] = {}
    alternatives: dict[str, list[Any]] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in VARIADIC:
            continue
        if name in given:
            first[name] = given[name]
            continue
        values = list(_possible_values(parameter, sizes, given, namespace, len(signature.parameters)))
        if values:
            first[name] = values[0]
            alternatives[name] = values[1:]
        elif parameter.default is parameter.empty:
            raise UnknownArgumentError(f"parameter {name!r} has no default and no usual name")
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        first |= given
    if {"n_heads", "d_model"} <= {size_kind(name) for name in signature.parameters}:
        first |= {name: sizes.d_head for name in first if normalized(name) in PER_HEAD_WIDTHS and name not in given}
    yield first
    for name, values in alternatives.items():
        for value in values:
            yield {**first, name: value}
    required = {
        n: v for n, v in first.items() if n in given or signature.parameters[n].default is inspect.Parameter.empty
    }
    if required != first:
        yield required


def _possible_values(
    parameter: inspect.Parameter, sizes: BlockSizes, given: Given, namespace: Mapping[str, Any], count: int
) -> Iterator[Any]:
    required = parameter.default is parameter.empty
    note = _annotation(parameter, namespace)
    if isinstance(note, type) and dataclasses.is_dataclass(note):
        yield _fill_dataclass(note, sizes, given)
        return
    kind = size_kind(parameter.name)
    if normalized(parameter.name) in CONFIG_NAMES and (count == 1 or kind != "d_model"):
        yield AnyConfig(sizes, given)
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
    elif required and note is not int and str(parameter.annotation) != "int":
        yield from (None, False)


def _fill_dataclass(config: type, sizes: BlockSizes, given: Given) -> Any:
    values: dict[str, Any] = {}
    for field in (field for field in dataclasses.fields(config) if field.init):
        kind = size_kind(field.name)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name in given:
            values[field.name] = given[field.name]
        elif required or (kind and kind not in (*KEEP_DEFAULT, "n_kv_heads", "causal")):
            values[field.name] = sizes.of(kind) if kind else SETTINGS.get(normalized(field.name))
    return config(**values)


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
