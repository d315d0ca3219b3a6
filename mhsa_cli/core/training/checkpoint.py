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
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import NewerFormatError, RunError
from mhsa_cli.records.formats import FORMAT

DTYPES = (torch.float32, torch.float64)  # of weights and moments; bfloat16 training keeps them in float32
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
WAITING = "waiting"  # in state.json, for train.patience; older versions have none


def unpack(files: Mapping[str, bytes], name: str) -> dict[str, Tensor]:
    """Read a safetensors file of a checkpoint. Raises: RunError if it is damaged or has another dtype."""
    try:
        found = load(files[name])
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"{name} is not a readable safetensors file") from error
    for key, tensor in found.items():
        if tensor.dtype not in DTYPES:
            raise RunError(f"{name}: {key!r:.80} holds {tensor.dtype}, expected one of {DTYPES}")
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
    moments = {f"exp_avg.{name}": t[slot] for name, t in first.items()}
    moments |= {f"exp_avg_sq.{name}": t[slot] for name, t in second.items()}
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


def read_state(files: Mapping[str, bytes], step: int | None = None) -> dict[str, Any]:
    """Read a checkpoint's step, seed, epoch_loss_sum and config; the step must be `step` if given.

    Raises: RunError if a value is missing or has another type, NewerFormatError for a format of a newer mhsa.
    """
    try:
        state = json.loads(files[STATE])
        found = state["format"]
        if type(found) is int and found > FORMAT:
            why = f"the checkpoint was made by a newer mhsa (format {found!r:.40}, this one reads up to {FORMAT})"
            raise NewerFormatError(why, "update mhsa-cli to read it")
        at, seed, loss, config = (state[key] for key in ("step", "seed", "epoch_loss_sum", "config"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise RunError(f"the checkpoint's state.json lacks what a resume needs ({error!s:.80})") from error
    if type(found) is not int or not 1 <= found <= FORMAT:  # JSON's true equals 1
        raise RunError(f"the checkpoint has the unknown format number {found!r:.40}: expected 1 to {FORMAT}")
    valid = {
        "step": type(at) is int and 0 <= at < 1 << 63 and step in (None, at),
        "seed": type(seed) is int and 0 <= seed < 1 << 63,
        "epoch_loss_sum": type(loss) is float or (type(loss) is int and abs(loss) < 1 << 63),
        "config": isinstance(config, dict) and all(isinstance(part, dict) for part in config.values()),
    }
    for key, is_valid in valid.items():
        if not is_valid:
            expected = step if key == "step" and step is not None else "a training's value"
            raise RunError(f"the checkpoint's state.json is damaged: {key} is {state[key]!r:.40}, expected {expected}")
    return dict(state)


def read_waiting(files: Mapping[str, bytes]) -> Waiting:
    """Read what a training waited for at a checkpoint; of an older version it begins there. Raises: RunError."""
    found = json.loads(files[STATE]).get(WAITING, [0, None, 0])
    match found:
        case [int(step), float() | int() | None as best, int(evaluations)] if min(step, evaluations) >= 0:
            return Waiting(step, math.inf if best is None else float(best), evaluations)
    raise RunError(f"the checkpoint's state.json is damaged: {WAITING} is {found!r:.40}")


def copy_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], what: str) -> None:
    """Copy tensors by name. Raises: RunError if names, shapes or dtypes differ."""
    missing, extra = sorted(targets.keys() - tensors.keys()), sorted(tensors.keys() - targets.keys())
    if missing or extra:
        raise RunError(f"{what} does not fit its config: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    for name, target in targets.items():
        for found, expected in zip(*((tuple(t.shape), dtype_name(t)) for t in (tensors[name], target)), strict=True):
            if found != expected:
                raise RunError(f"{what} does not fit its config: {name} is {found}, the config makes it {expected}")
        with torch.no_grad():
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
    return [{n.removeprefix(p): t for n, t in found if n.startswith(p)} for p in ("exp_avg.", "exp_avg_sq.")]


def load_weights(model: TransformerLM, files: Mapping[str, bytes]) -> TransformerLM:
    """Load a checkpoint's weights into a model and return it in eval mode. Raises: RunError."""
    copy_into(dict(model.named_parameters()), weights_of(files), WEIGHTS)
    return model.eval()
