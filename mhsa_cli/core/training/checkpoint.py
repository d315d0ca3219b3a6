"""Checkpoints: model and optimiser to bytes and back, as safetensors and JSON. No files and no pickle here."""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.early_stop import Waiting
from mhsa_cli.core.training.saved_tensors import MOMENT_NAMES, TRAINED_IN, check_kinds, other_dtype, unreadable
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.core.training.state import WAITING, read_state
from mhsa_cli.records.formats import FORMAT, MOMENTS, STATE, WEIGHTS


def unpack(files: Mapping[str, bytes], name: str) -> dict[str, Tensor]:
    """Read a safetensors file of a checkpoint. Raises: RunError if it is damaged or has another dtype."""
    try:
        found = load(files[name])
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise unreadable(name) from error
    for key, tensor in found.items():
        if dtype_name(tensor) not in TRAINED_IN:
            raise other_dtype(name, key, dtype_name(tensor))
    return found


def tensor_bytes(tensor: Tensor) -> bytes:
    """Copy a tensor's values to bytes, in row order, without numpy."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def dtype_name(tensor: Tensor) -> str:
    """Name a tensor's dtype as a config does: float32."""
    return str(tensor.dtype).removeprefix("torch.")


def weights_sha256(model: TransformerLM) -> str:
    """Digest a model's weights as `digest` does."""
    return digest(dict(model.named_parameters()))


def digest(parameters: Mapping[str, Tensor]) -> str:
    """Digest every parameter's name, shape, dtype and bits, in order of name."""
    found = hashlib.sha256()
    for name, parameter in sorted(parameters.items(), key=lambda item: item[0]):
        found.update(f"{name} {tuple(parameter.shape)} {dtype_name(parameter)}\n".encode())
        found.update(tensor_bytes(parameter))
    return found.hexdigest()


def pack(
    stack: Stack, slot: int, epoch_loss_sum: float, config: Mapping[str, Any], waiting: Waiting
) -> dict[str, bytes]:
    """Write one model of a stack as a checkpoint's files: weights, moments, step and config."""
    weights, first, second = (stack.views(flat) for flat in (stack.weights, stack.moment1, stack.moment2))
    both = zip(MOMENT_NAMES, (first, second), strict=True)
    moments = {f"{prefix}{name}": t[slot] for prefix, own in both for name, t in own.items()}
    state = {
        "format": FORMAT,
        "step": stack.updates,
        "seed": stack.seeds[slot],
        "epoch_loss_sum": epoch_loss_sum,
        "config": config,
        WAITING: [waiting.step, waiting.best if math.isfinite(waiting.best) else None, waiting.evaluations],
    }
    return {
        WEIGHTS: save({name: t[slot].contiguous() for name, t in weights.items()}),
        MOMENTS: save(moments),
        STATE: (json.dumps(state, sort_keys=True) + "\n").encode(),
    }


def copy_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], what: str) -> None:
    """Copy tensors by name. Raises: RunError if names, shapes or dtypes differ."""
    expected, found = ({n: (tuple(t.shape), dtype_name(t)) for n, t in own.items()} for own in (targets, tensors))
    check_kinds(expected, found, what)
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(tensors[name])


def restore(stack: Stack, slot: int, files: Mapping[str, bytes]) -> float:
    """Load a checkpoint into a slot, bit for bit, and return its epoch_loss_sum. Raises: RunError."""
    state = read_state(files)
    copy_into({n: t[slot] for n, t in stack.views(stack.weights).items()}, weights_of(files), WEIGHTS)
    for flat, own in zip((stack.moment1, stack.moment2), moments_of(files), strict=True):
        copy_into({n: t[slot] for n, t in stack.views(flat).items()}, own, MOMENTS)
    stack.set_updates(state["step"])
    return float(state["epoch_loss_sum"])


def weights_of(files: Mapping[str, bytes]) -> dict[str, Tensor]:
    """Read a checkpoint's weights by parameter name. Raises: RunError."""
    return unpack(files, WEIGHTS)


def moments_of(files: Mapping[str, bytes]) -> list[dict[str, Tensor]]:
    """Read a checkpoint's first and second moments by parameter name. Raises: RunError."""
    found = unpack(files, MOMENTS).items()
    return [{n.removeprefix(p): t for n, t in found if n.startswith(p)} for p in MOMENT_NAMES]


def load_weights(model: TransformerLM, files: Mapping[str, bytes]) -> TransformerLM:
    """Load a checkpoint's weights into a model and return it in eval mode. Raises: RunError."""
    copy_into(dict(model.named_parameters()), weights_of(files), WEIGHTS)
    return model.eval()
