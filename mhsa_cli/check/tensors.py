"""The tensors of an object, torch or NumPy, whatever it keeps them in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DEPTH = 6  # objects within objects
# A table, not a weight, in spite of its floats.
TABLE_WORDS = ("mask", "tril", "triu", "bias_cache", "cos", "sin", "freq", "theta", "pos", "cache", "scale", "rope")
LIBRARIES = ("torch", "numpy", "builtins", "typing", "types", "functools", "random", "logging")


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
        elif isinstance(self.holder, dict | list):
            self.holder[self.key] = new.numpy().copy()
        else:
            setattr(self.holder, self.key, new.numpy().copy())

    @property
    def linear(self) -> bool:
        """Tell whether it is the weight of a torch Linear: (out, in)."""
        return isinstance(self.holder, nn.Linear)

    @property
    def norm(self) -> bool:
        """Tell whether it belongs to a norm."""
        return "norm" in type(self.holder).__name__.lower() or "norm" in self.path.lower()


def slots(thing: Any) -> list[Slot]:
    """List the weights of an object, each once, in the order in which they were made."""
    found: dict[int, Slot] = {}
    registered = {id(p) for p in thing.parameters()} if isinstance(thing, nn.Module) else set()
    for slot in _walk(thing, "", 0, set()):
        known = id(slot.value)
        if known not in found and _is_weight(slot, slot.value, known in registered):
            slot.registered = known in registered or not isinstance(thing, nn.Module)
            found[known] = slot
    return list(found.values())


def _walk(holder: Any, path: str, depth: int, seen: set[int]) -> Iterator[Slot]:
    if depth > DEPTH or id(holder) in seen:
        return
    seen.add(id(holder))
    buffers: set[str] = set()
    if isinstance(holder, nn.Module):
        buffers = set(holder._buffers)
        own = {k: v for k, v in vars(holder).items() if not k.startswith("_")}
        items: list[tuple[Any, Any]] = [*holder._parameters.items(), *holder._modules.items(), *own.items()]
    elif isinstance(holder, list | tuple):
        items = list(enumerate(holder))
    else:
        items = list(holder.items() if isinstance(holder, dict) else getattr(holder, "__dict__", {}).items())
    for key, value in items:
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Tensor | np.ndarray):
            if key not in buffers and not isinstance(holder, tuple):
                yield Slot(name, holder, key, True)
        elif isinstance(value, nn.Module | dict | list | tuple) or _is_plain_object(value):
            yield from _walk(value, name, depth + 1, seen)


def _is_plain_object(value: Any) -> bool:
    """Tell whether it is an object of the user's own, not of a library, nor a function or a class."""
    home = type(value).__module__.partition(".")[0]
    return hasattr(value, "__dict__") and not isinstance(value, type) and home not in LIBRARIES


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


def worst(a: Tensor, b: Tensor) -> float:
    """Give the largest difference of two tensors of one shape; infinite where only one is NaN or infinite."""
    if a.shape != b.shape:
        return math.inf
    return float(distance(a, b).max()) if a.numel() else 0.0


def distance(a: Tensor, b: Tensor, alike: float = 0.0) -> Tensor:
    """Give how far two tensors are apart, number by number; `alike` counts the same infinity, or none in both."""
    off = (a.to(torch.float64) - b.to(torch.float64)).abs()
    if bool(off.isfinite().all()):
        return off
    same = off.isnan() & ((a == b) | (a.isnan() & b.isnan()))
    return off.nan_to_num(nan=math.inf).masked_fill(same, alike)
