"""The tensors of a checkpoint as they lie in its files, and whether they fit a config: all without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from safetensors import SafetensorError, deserialize

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.parameters import parameter_shapes
from mhsa_cli.config.schema import Config
from mhsa_cli.errors import RunError
from mhsa_cli.records.formats import DTYPES, MOMENTS, WEIGHTS

MOMENT_NAMES = ("exp_avg.", "exp_avg_sq.")  # before a parameter's name, of its first and second moment
TRAINED_IN = ("float32", "float64")  # of weights and moments; bfloat16 training keeps them in float32

Kind = tuple[tuple[int, ...], str]  # a tensor's shape and dtype


class Saved(NamedTuple):
    """A tensor of a file: its shape, its dtype as a config names it, and its numbers as bytes in row order."""

    shape: tuple[int, ...]
    dtype: str
    data: bytes

    @property
    def kind(self) -> Kind:
        """Shape and dtype."""
        return self.shape, self.dtype

    def is_finite(self) -> bool:
        """Whether it holds neither NaN nor infinity."""
        data = memoryview(self.data)
        numbers = data.cast("d") if self.dtype == "float64" else data.cast("f")
        return math.isfinite(sum(numbers)) or all(map(math.isfinite, numbers))  # a sum of finite ones may overflow


def read_tensors(files: Mapping[str, bytes], name: str) -> dict[str, Saved]:
    """Read a safetensors file of a checkpoint. Raises: RunError if it is damaged or has another dtype."""
    try:
        read = deserialize(files[name])
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise unreadable(name) from error
    found = {key: Saved(tuple(t["shape"]), DTYPES.get(t["dtype"], t["dtype"]), t["data"]) for key, t in read}
    for key, saved in found.items():
        if saved.dtype not in TRAINED_IN:
            raise other_dtype(name, key, saved.dtype)
    return found


def unreadable(name: str) -> RunError:
    """Make the error of a damaged file."""
    return RunError(f"{name} is not a readable safetensors file")


def other_dtype(name: str, key: str, found: str) -> RunError:
    """Make the error of numbers that no training writes."""
    return RunError(f"{name}: {key!r:.80} holds {found}, expected one of {', '.join(TRAINED_IN)}")


def check_kinds(expected: Mapping[str, Kind], found: Mapping[str, Kind], what: str) -> None:
    """Compare tensors by name, shape and dtype. Raises: RunError where they differ."""
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or extra:
        raise RunError(f"{what} does not fit its config: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    for name, kind in expected.items():
        for wanted, there in zip(kind, found[name], strict=True):
            if there != wanted:
                raise RunError(f"{what} does not fit its config: {name} is {there}, the config makes it {wanted}")


def check_fit(config: Config, vocab_size: int, seq_len: int, files: Mapping[str, bytes]) -> bool:
    """Check a checkpoint's weights and moments against its config; those of custom attention against each other.

    vocab_size, seq_len: those of the task. Returns whether all numbers are finite. Raises: RunError where they differ.
    """
    weights, both = read_tensors(files, WEIGHTS), read_tensors(files, MOMENTS)
    expected = {name: saved.kind for name, saved in weights.items()}
    if not is_file(config.model.attention):  # the shapes of custom attention are known to its code alone
        dtype = "float64" if config.train.dtype == "float64" else "float32"
        shapes = parameter_shapes(config.model, vocab_size, seq_len)
        expected = {name: (shape, dtype) for name, shape in shapes.items()}
        check_kinds(expected, {name: saved.kind for name, saved in weights.items()}, WEIGHTS)
    for prefix in MOMENT_NAMES:
        own = {name.removeprefix(prefix): saved.kind for name, saved in both.items() if name.startswith(prefix)}
        check_kinds(expected, own, MOMENTS)
    return all(saved.is_finite() for saved in (*weights.values(), *both.values()))
