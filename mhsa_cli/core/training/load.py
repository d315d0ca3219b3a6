"""Trained models from the bytes of a checkpoint, and the difference of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training import checkpoint
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.state import read_state


def load_trained(
    config: Config,
    task: Task,
    files: Mapping[str, bytes],
    check: Callable[[Mapping[str, Any]], None],
    custom: CustomAttention | None = None,
) -> TransformerLM:
    """Rebuild a run's model in eval mode; `check` gets the checkpoint's own config first.

    Raises: RunError if the checkpoint does not fit the config, and whatever `check` raises.
    """
    check(read_state(files)["config"])
    return checkpoint.load_weights(build_model(config, task, custom=custom), files)


def first_difference(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> str:
    """Describe the first difference of two checkpoints of one config; empty if all bits are equal."""
    name = next((name for name in first if first[name] != second[name]), None)
    if name is None or not name.endswith(".safetensors"):
        return "" if name is None else f"{name}: {first[name].decode()!r} and {second[name].decode()!r}"
    tensors, others = checkpoint.unpack(first, name), checkpoint.unpack(second, name)
    for key in tensors:
        a, b = tensors[key].flatten(), others[key].flatten()
        bits = torch.int64 if a.dtype == torch.float64 else torch.int32
        differ = (a.view(bits) != b.view(bits)).nonzero().flatten().tolist()
        if differ:
            values = f"{float(a[differ[0]])!r} and {float(b[differ[0]])!r}"
            return f"{name}: {key}[{differ[0]}] is {values}; {len(differ)} of its {len(a)} numbers differ"
    return f"{name}: equal numbers in different bytes"
