"""A block that stands: what is called, its sizes, and its weights."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mhsa_cli.check.call import call_plan
from mhsa_cli.check.call.call_plan import Answer, Plan
from mhsa_cli.check.call.constructor_args import Settings
from mhsa_cli.check.call.name_lexicon import SIZES, Sizes, kind_of, plain
from mhsa_cli.check.sentences import CallError
from mhsa_cli.check.source.load import Source
from mhsa_cli.check.tensors import Slot, slots

CONFIGS = ("config", "cfg", "args", "hparams", "conf", "settings", "opt", "opts", "flags", "hps")
STD = 0.3  # wide: with a usual initialisation the softmax is nearly even, and faults hide
GLOBAL_SIZES = ("d_model", "n_heads", "d_head", "seq_len", "batch_size", "dropout")


@dataclass
class Built:
    """A block with its sizes: an object that can be called, and its weights."""

    thing: Any
    call: Callable[..., Any]
    sizes: Sizes
    says: str
    numpy: bool
    supplied: dict[str, Any] = field(default_factory=dict)  # arguments of every call: sizes and weights of a function
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        # Before any call: what a call leaves behind on the object is no weight.
        self.lazy = self.module is not None and any(nn.parameter.is_lazy(p) for p in self.module.parameters())
        self.slots: list[Slot] = [] if self.lazy else slots(self.supplied if self.is_function else self.thing)

    def read_weights(self) -> None:
        """List the weights that the first call made, in a module that leaves their sizes to it."""
        if self.lazy:
            self.slots, self.lazy = [s for s in slots(self.thing) if s.registered], False

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in another precision; a method `to` of the user's own is left alone."""
        self.dtype = dtype
        if self.module is not None:
            nn.Module.to(self.module, dtype)

    @property
    def is_function(self) -> bool:
        """Tell whether its weights come with the call."""
        return inspect.isfunction(self.thing)

    @property
    def module(self) -> nn.Module | None:
        """Give it as a torch module, if it is one."""
        return self.thing if isinstance(self.thing, nn.Module) else None

    def draw(self, seed: int) -> dict[str, Tensor]:
        """Give every weight new numbers, wide ones, and return them in float64; a norm's scale lies around one."""
        generator, numbers = torch.Generator().manual_seed(seed), {}
        for slot in self.slots:
            new = STD * torch.randn(tuple(slot.value.shape), generator=generator, dtype=torch.float64)
            slot.write(1 + new if slot.norm and slot.path.endswith("weight") else new)
            numbers[slot.path] = slot.read()
        return numbers

    def run(self, plan: Plan, x: Tensor, weights: bool = False) -> Answer:
        """Call it with x (B, T, D). Raises: CallError, or whatever it raises."""
        extra, numpy = self.supplied, self.numpy
        if self.is_function:
            extra = _each(extra, (lambda t: t.numpy()) if numpy else (lambda t: t.to(x.dtype)))
        with torch.set_grad_enabled(x.requires_grad or torch.is_grad_enabled()):
            return call_plan.invoke(self.call, plan, x, numpy=numpy, sizes=self.sizes, weights=weights, extra=extra)


def _each(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Change every tensor in a dict, and in those within it."""
    if isinstance(value, dict):
        return {key: _each(inner, change) for key, inner in value.items()}
    return change(value) if isinstance(value, Tensor) else value


def set_globals(namespace: dict[str, Any], sizes: Sizes) -> None:
    """Give sizes that a file keeps at its top level (n_embd = 384) the values of this build."""
    for name, value in list(namespace.items()):
        if kind_of(name, SIZES) == "device" and isinstance(value, str | torch.device):
            namespace[name] = "cpu"
        elif plain(name).endswith(CONFIGS) and isinstance(value, dict | argparse.Namespace | SimpleNamespace):
            settings = value if isinstance(value, dict) else vars(value)  # one without a default may be a size, too
            settings.update({name: _size(name, old, sizes) for name, old in settings.items()
                             if old is None or _is_number(old)})  # fmt: skip
        elif _is_number(value):
            namespace[name] = _size(name, value, sizes)


def _size(name: Any, value: Any, sizes: Sizes) -> Any:
    """Give the value of this build to a setting that is a size by its name; any other keeps its own."""
    kind = kind_of(str(name), SIZES)
    return sizes.of(kind) if kind in GLOBAL_SIZES else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def entry(thing: Any) -> Callable[..., Any]:
    """Find what is called: a module (as its forward is), `__call__`, `forward`, or the one public method."""
    if isinstance(thing, nn.Module):

        def call(*args: Any, **named: Any) -> Any:
            return thing(*args, **named)

        call.__signature__ = inspect.signature(thing.forward)  # type: ignore[attr-defined]
        return call
    usual = ("__call__", "forward", "attend", "call", "apply", "compute", "attention")
    found = [name for name in usual if name in dir(type(thing))][:1]
    found = found or [n for n, m in vars(type(thing)).items() if inspect.isfunction(m) and not n.startswith("_")]
    if len(found) != 1:
        raise CallError("no_entry", name=type(thing).__name__)
    return getattr(thing, found[0])  # type: ignore[no-any-return]


def is_numpy(source: Source) -> bool:
    """Tell whether a file is about arrays, not tensors."""
    if inspect.isclass(source.attention) and issubclass(source.attention, nn.Module):
        return False
    return "numpy" in source.text and "torch" not in source.text


def sizes_of(thing: Any, sizes: Sizes) -> Sizes:
    """Read the sizes of an instance from its attributes, where it has them."""
    found = {}
    for name, value in vars(thing).items():
        kind = kind_of(name, SIZES)
        if kind in ("d_model", "n_heads") and isinstance(value, int) and not isinstance(value, bool):
            found[kind] = value
    if "d_model" not in found:
        sides = [min(slot.value.shape) for slot in slots(thing) if slot.value.ndim == 2]
        found["d_model"] = min(sides, default=sizes.d_model)
    return replace(sizes, **found)


def short(value: Any) -> str:
    """Write a constructor's argument."""
    if isinstance(value, Settings):
        return "a config of usual names"
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__ + "(...)"
