"""How the parameters of a constructor are filled: sizes by their names, configs of any kind, and what the user gave."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from mhsa_cli.check.call.name_lexicon import SIZES, Sizes, kind_of, plain, signature_of
from mhsa_cli.check.sentences import noted
from mhsa_cli.records.check import Note

# Settings that change nothing of what attention is: their names, as `plain` writes them, and a usual value.
_USUAL: tuple[tuple[str, Any], ...] = (
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
USUAL = {name: value for names, value in _USUAL for name in names.split()}
# Sizes and settings whose default is as good as ours: kinds of `name_lexicon.SIZES`.
DEFAULT = ("bias", "device", "dtype", "theta", "seed", "n_layers", "vocab_size")


class UnknownSizeError(TypeError):
    """A parameter has no default, and a name that tells nothing."""


class LacksError(KeyError):
    """A config has no setting of this name, and nobody can guess one."""


class Settings(dict[str, Any]):
    """A config that answers by any usual name, as an attribute or an item."""

    def __init__(self, sizes: Sizes, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and plain(name) not in USUAL:
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"the config has no {name!r}") from error

    def __missing__(self, name: str) -> Any:
        kind = kind_of(name, SIZES)
        if not kind and plain(name) not in USUAL:
            raise LacksError(name)
        return USUAL[plain(name)] if plain(name) in USUAL else self._sizes.of(kind)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            dict.__contains__(self, name) or kind_of(name, SIZES) not in ("", "n_kv_heads") or plain(name) in USUAL
        )

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        """Look a name up as a dict would."""
        return self[name] if name in self else default  # noqa: SIM401 (it would call itself)


OF_ONE_HEAD = ("doutkq", "doutqk", "doutq", "doutk", "doutv")  # beside a number of heads: the width of each
CONFIGS = ("config", "cfg", "args", "hparams", "params", "configuration", "conf", "c", "settings", "modelargs", "opt")


def fillings(
    signature: inspect.Signature, sizes: Sizes, given: Mapping[str, Any], namespace: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """List the ways to fill a constructor's parameters, the likeliest first; `given` are the user's own.

    Raises: UnknownSizeError naming the parameter that nobody can guess.
    """
    first: dict[str, Any] = {}
    alternatives: dict[str, list[Any]] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in given:
            first[name] = given[name]
            continue
        values = list(_values(parameter, sizes, given, namespace, len(signature.parameters)))
        if values:
            first[name] = values[0]
            alternatives[name] = values[1:]
        elif parameter.default is parameter.empty:
            raise UnknownSizeError(f"its parameter {name!r} is no size that has a usual name")
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        first |= given
    if {"n_heads", "d_model"} <= {kind_of(name, SIZES) for name in signature.parameters}:
        first |= {name: sizes.d_head for name in first if plain(name) in OF_ONE_HEAD and name not in given}
    yield first
    for name, values in alternatives.items():
        for value in values:
            yield {**first, name: value}
    required = {
        n: v for n, v in first.items() if n in given or signature.parameters[n].default is inspect.Parameter.empty
    }
    if required != first:
        yield required


def _values(
    parameter: inspect.Parameter, sizes: Sizes, given: Mapping[str, Any], namespace: Mapping[str, Any], count: int
) -> Iterator[Any]:
    required = parameter.default is parameter.empty
    note = annotation_of(parameter, namespace)
    if isinstance(note, type) and dataclasses.is_dataclass(note):
        yield _filled(note, sizes, given)
        return
    kind = kind_of(parameter.name, SIZES)
    if plain(parameter.name) in CONFIGS and (count == 1 or kind != "d_model"):
        yield Settings(sizes, given)
        return
    if kind in DEFAULT and not required:
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
        if kind == "d_head":  # names lie: d_k that is the width, d_head that is the number of heads
            yield from (sizes.d_model, sizes.n_heads)
    elif required and plain(parameter.name) in USUAL:
        yield USUAL[plain(parameter.name)]
    elif required and note in (bool, "bool"):
        yield from (False, True)
    elif required and note in (float, "float"):
        yield 0.0
    elif required and note is not int and str(parameter.annotation) != "int":
        yield from (None, False)


def _filled(config: type, sizes: Sizes, given: Mapping[str, Any]) -> Any:
    """Make a dataclass of settings with our sizes."""
    values: dict[str, Any] = {}
    for field in (field for field in dataclasses.fields(config) if field.init):
        kind = kind_of(field.name, SIZES)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name in given:
            values[field.name] = given[field.name]
        elif required or (kind and kind not in (*DEFAULT, "n_kv_heads", "causal")):
            values[field.name] = sizes.of(kind) if kind else USUAL.get(plain(field.name))
    return config(**values)


def annotation_of(parameter: inspect.Parameter, namespace: Mapping[str, Any]) -> Any:
    """Give a parameter's annotation, also one that is written as text."""
    note = parameter.annotation
    return note if isinstance(note, type) else namespace.get(str(note))


def unknown(attention: Callable[..., Any], given: Mapping[str, Any], namespace: Mapping[str, Any]) -> list[str]:
    """List the parameters that have no default and no usual name: what was tried for them is a guess."""
    return [
        name
        for name, p in signature_of(attention).parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in given
        and not kind_of(name, SIZES) and plain(name) not in (*CONFIGS, *USUAL)
        and not dataclasses.is_dataclass(annotation_of(p, namespace))
    ]  # fmt: skip


def lacked(error: BaseException) -> str:
    """Give the name that a config was asked for in vain, if that is what an error is about; else ""."""
    for one in (error, error.__cause__, error.__context__):
        if isinstance(one, LacksError):
            return str(one.args[0])
    return ""


def given_to(call: Callable[..., Any], given: Mapping[str, Any], any_name: bool = False) -> dict[str, Any]:
    """Choose of what the user gave the arguments of a call; `any_name` also for its `**others`."""
    parameters = signature_of(call).parameters
    every = any_name and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {name: value for name, value in given.items() if every or name in parameters}


def left_over(attention: Any, given: Mapping[str, Any], namespace: Mapping[str, Any], text: str) -> Iterator[Note]:
    """Say of each argument that the user gave and nothing takes that it is so, and what there is to be given."""
    takes, more = [], False
    calls = [attention] if inspect.isclass(attention) or inspect.isroutine(attention) else []
    if not inspect.isroutine(attention):
        calls += [getattr(attention, name) for name in ("forward", "__call__") if name in dir(attention)][:1]
    for call in calls:
        try:
            parameters = signature_of(call).parameters.values()
        except TypeError:
            more = True
            continue
        for parameter in parameters:
            note = annotation_of(parameter, namespace)
            if parameter.kind is parameter.VAR_KEYWORD:
                more = more or call is attention
            elif isinstance(note, type) and dataclasses.is_dataclass(note):
                takes += [field.name for field in dataclasses.fields(note)]
            elif plain(parameter.name) in CONFIGS:
                takes += list(_asked_of(parameter.name, text))
            elif parameter.kind is not parameter.VAR_POSITIONAL and parameter.name != "self":
                takes.append(parameter.name)
    for name in () if more else given:
        if name not in takes:
            yield noted("not_taken", name=name, names=list(dict.fromkeys(takes)))


def _asked_of(config: str, text: str) -> Iterator[str]:
    """List the settings that a file reads of a config: `config.n_head`, `self.config["n_head"]`."""
    for node in ast.walk(ast.parse(text)):
        holder = getattr(node, "value", None)
        if getattr(holder, "id", getattr(holder, "attr", None)) != config:
            continue
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)
