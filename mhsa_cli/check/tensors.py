"""The tensors of an object, torch or NumPy, in attributes, lists and dicts at any depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DEPTH = 6  # levels of nested objects
# Names of tables that are no weights although they hold floats.
TABLE_WORDS = ("mask", "tril", "triu", "bias_cache", "cos", "sin", "freq", "theta", "pos", "cache", "scale", "rope")
LIBRARIES = ("torch", "numpy", "builtins", "typing", "types", "functools", "random", "logging")


@dataclass(slots=True)
class Slot:
    """One tensor in an object: its path, its holder, and whether `parameters()` lists it."""

    path: str
    holder: Any
    key: Any
    registered: bool

    @property
    def value(self) -> Any:
        return self.holder[self.key] if isinstance(self.holder, dict | list) else getattr(self.holder, self.key)

    def read(self) -> Tensor:
        """Copy the values in float64."""
        value = self.value
        return (value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(value)).to(torch.float64).clone()

    def write(self, new: Tensor) -> None:
        """Overwrite the values; an array of lower precision is replaced by one of float64."""
        value = self.value
        if isinstance(value, Tensor):
            with torch.no_grad():
                value.data = new.to(value.dtype)
        elif isinstance(self.holder, dict | list):
            self.holder[self.key] = new.numpy().copy()
        else:
            setattr(self.holder, self.key, new.numpy().copy())

    @property
    def is_linear(self) -> bool:
        """Whether it is the weight of a torch Linear: (out, in)."""
        return isinstance(self.holder, nn.Linear)

    @property
    def is_norm(self) -> bool:
        """Whether it belongs to a norm."""
        return "norm" in type(self.holder).__name__.lower() or "norm" in self.path.lower()


def slots(obj: Any) -> list[Slot]:
    """List the weights of an object, each once, in order of creation."""
    found: dict[int, Slot] = {}
    registered = {id(p) for p in obj.parameters()} if isinstance(obj, nn.Module) else set()
    for slot in _iterate(obj, "", 0, set()):
        key = id(slot.value)
        if key not in found and _is_weight(slot, slot.value, key in registered):
            slot.registered = key in registered or not isinstance(obj, nn.Module)
            found[key] = slot
    return list(found.values())


def _iterate(holder: Any, path: str, depth: int, visited: set[int]) -> Iterator[Slot]:
    if depth > DEPTH or id(holder) in visited:
        return
    visited.add(id(holder))
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
            yield from _iterate(value, name, depth + 1, visited)


def _is_plain_object(value: Any) -> bool:
    """Whether it is an object of the user's own: not of a library, and neither a function nor a class."""
    home = type(value).__module__.partition(".")[0]
    return hasattr(value, "__dict__") and not isinstance(value, type) and home not in LIBRARIES


def _is_weight(slot: Slot, value: Any, registered: bool) -> bool:
    if "float" not in str(value.dtype) or value.ndim == 0:
        return False
    if registered:
        return True
    if any(word in slot.path.lower() for word in TABLE_WORDS):
        return False
    return value.ndim == 1 or not holds_mask_values(torch.as_tensor(value).detach())


def holds_mask_values(values: Tensor) -> bool:
    """Whether all values are those of a mask: 0, 1, not finite, or very negative."""
    return bool(((values == 0) | (values == 1) | ~values.isfinite() | (values < -1e3)).all())


@contextmanager
def editable_weights(found: Sequence[Slot]) -> Iterator[tuple[Tensor, Callable[[Tensor], None]]]:
    """Give all numbers as one vector, end to end, and a function that overwrites them; restores them at the end."""
    numbers = torch.cat([slot.read().flatten() for slot in found])
    counts = [math.prod(slot.value.shape) for slot in found]

    def write(new: Tensor) -> None:
        for slot, part in zip(found, new.split(counts), strict=True):
            slot.write(part.view(tuple(slot.value.shape)))

    try:
        yield numbers, write
    finally:
        write(numbers)


def max_difference(a: Tensor, b: Tensor) -> float:
    """Largest difference of two tensors; infinite if their shapes differ or only one of them is NaN or infinite."""
    if a.shape != b.shape:
        return math.inf
    return float(abs_difference(a, b).max()) if a.numel() else 0.0


def scale_of(t: Tensor) -> float:
    """Largest absolute value of a tensor, at least 1: the unit of its tolerances."""
    return max(1.0, float(t.abs().nan_to_num().max())) if t.numel() else 1.0


def abs_difference(a: Tensor, b: Tensor, nonfinite: float = 0.0) -> Tensor:
    """Absolute difference, element by element; `nonfinite` is that of two equal infinities, or of two NaN."""
    off = (a.to(torch.float64) - b.to(torch.float64)).abs()
    if bool(off.isfinite().all()):
        return off
    same = off.isnan() & ((a == b) | (a.isnan() & b.isnan()))
    return off.nan_to_num(nan=math.inf).masked_fill(same, nonfinite)
