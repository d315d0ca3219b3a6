"""The tensors of a foreign object, torch or NumPy, whatever it keeps them in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

STD = 0.3  # wide: with a usual initialisation the softmax is nearly even, and faults hide
DEPTH = 6  # objects within objects
# A table, not a weight, in spite of its floats.
TABLE_WORDS = ("mask", "tril", "triu", "bias_cache", "cos", "sin", "freq", "theta", "pos", "cache", "scale", "rope")


@dataclass(slots=True)
class Slot:
    """One tensor in an object: its path, its holder, and whether `parameters()` knows it."""

    path: str
    holder: Any
    key: Any
    registered: bool

    @property
    def value(self) -> Any:
        """The tensor or array itself."""
        if isinstance(self.holder, dict | list):
            return self.holder[self.key]
        return getattr(self.holder, self.key)

    def read(self) -> Tensor:
        """Copy it in float64."""
        value = self.value
        return (value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(value)).to(torch.float64).clone()

    def write(self, new: Tensor) -> None:
        """Put other numbers in its place; an array of lower precision is replaced by one of float64."""
        value = self.value
        if isinstance(value, Tensor):
            with torch.no_grad():
                value.data = new.to(value.dtype)
            return
        array = new.numpy().copy()
        if isinstance(self.holder, dict | list):
            self.holder[self.key] = array
        else:
            setattr(self.holder, self.key, array)

    @property
    def linear(self) -> bool:
        """Tell whether it is the weight of a torch Linear: (out, in)."""
        return isinstance(self.holder, nn.Linear)

    @property
    def norm(self) -> bool:
        """Tell whether it belongs to a norm."""
        return "norm" in type(self.holder).__name__.lower() or "norm" in self.path.lower()


def is_lazy(value: Any) -> bool:
    """Tell whether a parameter waits for its first input to have a size."""
    return bool(nn.parameter.is_lazy(value))


def slots(target: Any) -> list[Slot]:
    """List the weights of an object, each once, in the order in which they were made."""
    found: list[Slot] = []
    seen: set[int] = set()
    registered = {id(p) for p in target.parameters()} if isinstance(target, nn.Module) else set()
    for slot in _walk(target, "", 0, set()):
        value = slot.value
        if id(value) in seen or not _is_weight(slot, value, id(value) in registered):
            continue
        seen.add(id(value))
        slot.registered = id(value) in registered or not isinstance(target, nn.Module)
        found.append(slot)
    return found


def _walk(holder: Any, path: str, depth: int, seen: set[int]) -> Iterator[Slot]:
    if depth > DEPTH or id(holder) in seen:
        return
    seen.add(id(holder))
    buffers: set[str] = set()
    if isinstance(holder, nn.Module):
        buffers = set(holder._buffers)
        items: list[tuple[Any, Any]] = [
            *((k, v) for k, v in holder._parameters.items() if v is not None),
            *holder._modules.items(),
            *((k, v) for k, v in vars(holder).items() if not k.startswith("_")),
        ]
    elif isinstance(holder, dict):
        items = list(holder.items())
    elif isinstance(holder, list | tuple):
        items = list(enumerate(holder))
    else:
        items = [(k, v) for k, v in getattr(holder, "__dict__", {}).items()]
    for key, value in items:
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Tensor | np.ndarray):
            if key not in buffers and not isinstance(holder, tuple):
                yield Slot(name, holder, key, True)
        elif isinstance(value, nn.Module | dict | list | tuple) or _is_plain_object(value):
            yield from _walk(value, name, depth + 1, seen)


def _is_plain_object(value: Any) -> bool:
    """Tell whether it is an object of the user's own, not of a library."""
    home = type(value).__module__.partition(".")[0]
    return hasattr(value, "__dict__") and not isinstance(value, type) and not callable_only(value) and home not in (
        "torch", "numpy", "builtins", "typing", "types", "functools", "random", "logging")  # fmt: skip


def callable_only(value: Any) -> bool:
    """Tell whether it is a function or a method."""
    return type(value).__name__ in ("function", "method", "builtin_function_or_method", "module")


def _is_weight(slot: Slot, value: Any, registered: bool) -> bool:
    dtype = str(value.dtype)
    if "float" not in dtype or value.ndim == 0:
        return False
    if registered:
        return True
    if any(word in slot.path.lower() for word in TABLE_WORDS):
        return False
    numbers = torch.as_tensor(value).detach().flatten()
    return not bool(((numbers == 0) | (numbers == 1) | ~numbers.isfinite() | (numbers < -1e3)).all()) or value.ndim == 1


def draw(found: list[Slot], generator: torch.Generator) -> dict[str, Tensor]:
    """Give every weight new numbers, wide ones, and return them in float64; a norm's scale lies around one."""
    numbers = {}
    for slot in found:
        size = tuple(slot.value.shape)
        new = STD * torch.randn(size, generator=generator, dtype=torch.float64)
        if slot.norm and slot.path.endswith("weight"):
            new = 1 + new
        slot.write(new)
        numbers[slot.path] = slot.read()
    return numbers


def worst(a: Tensor, b: Tensor) -> float:
    """Give the largest difference of two tensors of one shape; infinite where only one is NaN or infinite."""
    if a.shape != b.shape:
        return math.inf
    return float(distance(a, b).max()) if a.numel() else 0.0


def distance(a: Tensor, b: Tensor, alike: float = 0.0) -> Tensor:
    """Give how far two tensors are apart, number by number; `alike` counts the same infinity, or none in both."""
    off = (a.to(torch.float64) - b.to(torch.float64)).abs()
    same = off.isnan() & ((a == b) | (a.isnan() & b.isnan()))
    return off.nan_to_num(nan=math.inf).masked_fill(same, alike)
