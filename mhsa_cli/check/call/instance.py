"""An instantiated block: its callable, sizes and weights."""

from __future__ import annotations

import argparse
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mhsa_cli.check.call.call_form import CallForm, CallResult, invoke
from mhsa_cli.check.call.constructor_args import AnyConfig
from mhsa_cli.check.call.name_lexicon import BlockSizes, input_kind, normalized, size_kind
from mhsa_cli.check.locate.anatomy import Anatomy
from mhsa_cli.check.sentences import CallError
from mhsa_cli.check.source.load import Source
from mhsa_cli.check.tensors import Slot, max_difference, slots

CONFIG_ENDINGS = ("config", "cfg", "args", "hparams", "conf", "settings", "opt", "opts", "flags", "hps")
STD = 0.3  # wide: with a usual initialisation the softmax is nearly uniform, which hides faults
GLOBAL_SIZES = ("d_model", "n_heads", "d_head", "seq_len", "batch_size", "max_batch_size", "dropout")


@dataclass
class Instance:
    """An instantiated block: the object, what is called, its sizes, and a description of how it was built.

    `supplied` are arguments of every call: the sizes and weights of a function; `arguments` those of its construction.
    """

    obj: Any
    call: Callable[..., Any]
    sizes: BlockSizes
    description: str
    numpy: bool
    supplied: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64
    arguments: Mapping[str, Any] = field(default_factory=dict)
    traced: Anatomy | None = field(default=None, init=False)  # what its first call ran, once that was asked

    def __post_init__(self) -> None:
        # Before any call: what a call stores on the object is no weight.
        self.lazy = self.module is not None and any(nn.parameter.is_lazy(p) for p in self.module.parameters())
        self.slots: list[Slot] = [] if self.lazy else slots(self.supplied if self.is_function else self.obj)

    def read_weights(self) -> None:
        """List the weights of a lazy module after its first call."""
        if self.lazy:
            self.slots, self.lazy = [s for s in slots(self.obj) if s.registered], False

    def drop_constants(self, other: Any) -> None:
        """Take what is no parameter, and the same in another object built alike, for a constant, and no weight."""
        twins = {slot.path: slot for slot in slots(other)}

        def is_constant(slot: Slot) -> bool:
            twin = twins.get(slot.path)
            trained = getattr(slot.value, "requires_grad", False)
            return not trained and twin is not None and max_difference(slot.read(), twin.read()) == 0

        self.slots = [slot for slot in self.slots if slot.registered or not is_constant(slot)]

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in another precision; a method `to` of the user's own is not called."""
        self.dtype = dtype
        if self.module is not None:
            nn.Module.to(self.module, dtype)

    @property
    def is_function(self) -> bool:
        """Whether the weights are passed with the call."""
        return inspect.isfunction(self.obj)

    @property
    def module(self) -> nn.Module | None:
        """The torch module, if it is one."""
        return self.obj if isinstance(self.obj, nn.Module) else None

    @property
    def tensor_sizes(self) -> dict[int, None]:
        """Sizes of the axes of the parameters and buffers of a module, each once."""
        module = self.module
        tensors = [] if module is None else [*module.parameters(), *module.buffers()]
        return {size: None for tensor in tensors if not nn.parameter.is_lazy(tensor) for size in tensor.shape}

    def draw(self, seed: int) -> dict[str, Tensor]:
        """Draw wide weights, those of a norm around one; returns them by path in float64."""
        generator, numbers = torch.Generator().manual_seed(seed), {}
        for slot in self.slots:
            new = STD * torch.randn(tuple(slot.value.shape), generator=generator, dtype=torch.float64)
            slot.write(1 + new if slot.is_norm and slot.path.endswith("weight") else new)
            numbers[slot.path] = slot.read()
        return numbers

    def run(self, call_form: CallForm, x: Tensor, weights: bool = False) -> CallResult:
        """Call with x (B, T, D). Raises: CallError, or any error of the block."""
        extra, numpy = self.supplied, self.numpy
        if self.is_function:
            extra = _map_tensors(extra, (lambda t: t.numpy()) if numpy else (lambda t: t.to(x.dtype)))
        with torch.set_grad_enabled(x.requires_grad or torch.is_grad_enabled()):
            return invoke(self.call, call_form, x, numpy=numpy, sizes=self.sizes, weights=weights, extra=extra)


class ProjectedFunction:
    """One head around a function of q, k and v: adds the three projections, and no output projection."""

    def __init__(self, call: Any, names: tuple[str, ...], d_model: int, numpy: bool) -> None:
        made: list[Any] = [torch.randn(d_model, d_model, dtype=torch.float64) for _ in range(3)]
        self.query, self.key, self.value = [m.numpy() for m in made] if numpy else made
        self._call, self._names = call, names

    def __call__(self, x: Any, **others: Any) -> Any:
        projections = {"q": self.query, "k": self.key, "v": self.value}
        weights = {name: projections[input_kind(name)] for name in self._names}
        inputs = {name: x @ (w.to(x.dtype) if isinstance(w, Tensor) else w) for name, w in weights.items()}
        return self._call(**inputs, **others)


def _map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map_tensors(inner, change) for key, inner in value.items()}
    return change(value) if isinstance(value, Tensor) else value


def set_global_sizes(namespace: dict[str, Any], sizes: BlockSizes) -> None:
    """Set the sizes that a file keeps in globals (n_embd = 384), or in a global config."""
    for name, value in list(namespace.items()):
        if size_kind(name) == "device" and isinstance(value, str | torch.device):
            namespace[name] = "cpu"
        elif (settings := _global_config(name, value)) is not None:  # None may be a size without a default
            settings.update({key: _size(key, old, sizes) for key, old in settings.items()
                             if old is None or _is_number(old)})  # fmt: skip
        elif _is_number(value):
            namespace[name] = _size(name, value, sizes)


def _global_config(name: str, value: Any) -> dict[str, Any] | None:
    """Return the settings of a global config; None if it is none."""
    if not (
        normalized(name).endswith(CONFIG_ENDINGS) and isinstance(value, dict | argparse.Namespace | SimpleNamespace)
    ):
        return None
    return value if isinstance(value, dict) else vars(value)


@contextmanager
def same_globals(namespace: dict[str, Any]) -> Iterator[None]:
    """Let globals have their values again afterwards, and global configs their settings."""
    before = dict(namespace)
    known = [_global_config(name, value) for name, value in before.items()]
    configs = [(config, dict(config)) for config in known if config is not None]
    try:
        yield
    finally:
        namespace.update({name: value for name, value in before.items() if namespace.get(name) is not value})
        for config, settings in configs:
            config.update(settings)


def _size(name: Any, value: Any, sizes: BlockSizes) -> Any:
    kind = size_kind(str(name))
    return sizes.of(kind) if kind in GLOBAL_SIZES else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def entry_point(obj: Any) -> Callable[..., Any]:
    """Find what is called: a module (with the signature of its forward), `__call__`, `forward`, or the only method."""
    if isinstance(obj, nn.Module):

        def call(*args: Any, **named: Any) -> Any:
            return obj(*args, **named)

        call.__signature__ = inspect.signature(obj.forward)  # type: ignore[attr-defined]
        return call
    usual = ("__call__", "forward", "attend", "call", "apply", "compute", "attention")
    found = [name for name in usual if name in dir(type(obj))][:1]
    found = found or [n for n, m in vars(type(obj)).items() if inspect.isfunction(m) and not n.startswith("_")]
    if len(found) != 1:
        raise CallError("no_entry_point", name=type(obj).__name__)
    return getattr(obj, found[0])  # type: ignore[no-any-return]


def is_numpy(source: Source) -> bool:
    """Whether a file computes with NumPy arrays, not tensors."""
    if inspect.isclass(source.attention) and issubclass(source.attention, nn.Module):
        return False
    return "numpy" in source.text and "torch" not in source.text


def sizes_from_attributes(obj: Any, sizes: BlockSizes) -> BlockSizes:
    """Read the sizes of an object from its attributes, from those of its config, else from its weights."""
    found: dict[str, int] = {}
    configs = [one for name, one in vars(obj).items() if normalized(name).endswith(CONFIG_ENDINGS)]
    for name, value in [*vars(obj).items(), *(pair for one in configs for pair in _settings(one))]:
        kind = size_kind(name)
        if kind in ("d_model", "n_heads") and isinstance(value, int) and not isinstance(value, bool):
            found.setdefault(kind, value)
    if "d_model" not in found:
        matrices = [slot for slot in slots(obj) if slot.value.ndim == 2]
        sides = Counter(side for slot in matrices for side in slot.value.shape[1 if slot.is_linear else 0 :])
        found["d_model"] = sides.most_common(1)[0][0] if sides else sizes.d_model
    return replace(sizes, **found)


def _settings(config: Any) -> list[tuple[str, Any]]:
    """List the settings of a config, a dict or an object, under their own names and those of its class."""
    if isinstance(config, dict):
        return list(config.items())
    names = [*getattr(config, "__dict__", {}), *getattr(type(config), "attribute_map", {})]
    return [(name, getattr(config, name, None)) for name in names]


def short_repr(value: Any) -> str:
    """Write a constructor argument."""
    if isinstance(value, AnyConfig):
        return "a config with the usual settings"
    text = repr(value)
    return text if len(text) <= 60 else type(value).__name__ + "(...)"
