"""A trained model back from its checkpoint's bytes, and whether those are what they should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from mhsa_cli.config.schema import Config
from mhsa_cli.core.checkpoint import load_weights, read_state, restore, unpack, weights_sha256
from mhsa_cli.core.engine import build_model
from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.stack import Stack, unstack
from mhsa_cli.core.tasks import Task


def load_trained(
    config: Config, task: Task, files: Mapping[str, bytes], check: Callable[[Mapping[str, Any]], None]
) -> TransformerLM:
    """Rebuild a run's model in eval mode; `check` is shown the settings that its checkpoint was trained with first.

    Raises: RunError if the checkpoint does not fit the config, and whatever `check` raises.
    """
    check(read_state(files)["config"])
    return load_weights(build_model(config, task), files)


def check_fit(config: Config, task: Task, files: Mapping[str, bytes]) -> tuple[str, bool]:
    """Put a checkpoint's weights and moments into the model of its config.

    Returns the weights' digest, and whether all its numbers are finite. Raises: RunError where a shape does not fit.
    """
    stack = Stack([build_model(config, task)], [config.train.seed], config.train, torch.device("cpu"))
    restore(stack, 0, files)
    finite = all(bool(flat.isfinite().all()) for flat in (stack.weights, stack.moment1, stack.moment2))
    return weights_sha256(unstack(stack.model, 0)), finite


def first_difference(ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> str:
    """Say where two checkpoints of one config differ first, and in which numbers; empty if all bits are equal."""
    name = next((name for name in ours if ours[name] != theirs[name]), None)
    if name is None or not name.endswith(".safetensors"):
        return "" if name is None else f"{name}: {ours[name].decode()!r} and {theirs[name].decode()!r}"
    mine, others = unpack(ours[name], name), unpack(theirs[name], name)
    for key in mine:
        first, second = mine[key].flatten(), others[key].flatten()
        bits = torch.int64 if first.dtype == torch.float64 else torch.int32
        differ = (first.view(bits) != second.view(bits)).nonzero().flatten().tolist()
        if differ:
            values = f"{float(first[differ[0]])!r} and {float(second[differ[0]])!r}"
            return f"{name}: {key}[{differ[0]}] is {values}; {len(differ)} of its {len(first)} numbers differ"
    return f"{name}: the same numbers, written otherwise"
