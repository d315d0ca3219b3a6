"""Model and optimiser to bytes and back. No files here, and no pickle: safetensors and JSON."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import NewerFormatError, RunError
from mhsa_cli.records.formats import FORMAT

DTYPES = (torch.float32, torch.float64)  # of weights and moments; what is computed in bfloat16 keeps them in float32


def unpack(files: Mapping[str, bytes], name: str) -> dict[str, Tensor]:
    """Read a safetensors file of a checkpoint. Raises: RunError naming it if it is none, or holds other numbers."""
    try:
        found = load(files[name])
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"{name} is not a readable safetensors file") from error
    for key, tensor in found.items():
        if tensor.dtype not in DTYPES:
            raise RunError(f"{name}: {key!r:.80} holds {tensor.dtype}, expected one of {DTYPES}")
    return found


def tensor_bytes(tensor: Tensor) -> bytes:
    """Copy a tensor's values out as bytes, in row order (numpy is not needed for it)."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def dtype_name(tensor: Tensor) -> str:
    """Name a tensor's type as a config does: float32."""
    return str(tensor.dtype).removeprefix("torch.")


def weights_sha256(model: TransformerLM) -> str:
    """Digest every parameter's name, shape and bits, in order of name: equal digests are equal models."""
    return digest(dict(model.named_parameters()))


def digest(parameters: Mapping[str, Tensor]) -> str:
    """Digest parameters by name as `weights_sha256` does those of a model."""
    found = hashlib.sha256()
    for name, parameter in sorted(parameters.items(), key=lambda item: item[0]):
        found.update(f"{name} {tuple(parameter.shape)} {dtype_name(parameter)}\n".encode())
        found.update(tensor_bytes(parameter))
    return found.hexdigest()


def pack(stack: Stack, slot: int, epoch_loss_sum: float, config: Mapping[str, Any]) -> dict[str, bytes]:
    """Write one model of a stack as a checkpoint's files: weights, moments, the loop's position, and its settings."""
    weights, first, second = (stack.views(flat) for flat in (stack.weights, stack.moment1, stack.moment2))
    moments = {f"exp_avg.{name}": t[slot] for name, t in first.items()}
    moments |= {f"exp_avg_sq.{name}": t[slot] for name, t in second.items()}
    state = {
        "format": FORMAT,
        "step": stack.updates,
        "seed": stack.seeds[slot],
        "epoch_loss_sum": epoch_loss_sum,
        "config": config,
    }
    return {
        "model.safetensors": save({name: t[slot].contiguous() for name, t in weights.items()}),
        "optimizer.safetensors": save(moments),
        "state.json": (json.dumps(state, sort_keys=True) + "\n").encode(),
    }


def read_state(files: Mapping[str, bytes], step: int | None = None) -> dict[str, Any]:
    """Read the loop's position, which must be `step` if given.

    Raises: RunError if a value is missing or of another kind than it should be, NewerFormatError if a newer mhsa
    wrote it.
    """
    try:
        state = json.loads(files["state.json"])
        found = state["format"]
        if type(found) is int and found > FORMAT:
            why = f"the checkpoint was made by a newer mhsa (format {found!r:.40}, this one reads up to {FORMAT})"
            raise NewerFormatError(why, "update mhsa-cli to read it")
        at, seed, loss, config = (state[key] for key in ("step", "seed", "epoch_loss_sum", "config"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise RunError(f"the checkpoint's state.json lacks what a resume needs ({error!s:.80})") from error
    if type(found) is not int or not 1 <= found <= FORMAT:  # JSON's true equals 1
        raise RunError(f"the checkpoint has the unknown format number {found!r:.40}: expected 1 to {FORMAT}")
    fits = {
        "step": type(at) is int and 0 <= at < 1 << 63 and step in (None, at),
        "seed": type(seed) is int and 0 <= seed < 1 << 63,
        "epoch_loss_sum": type(loss) is float or (type(loss) is int and abs(loss) < 1 << 63),
        "config": isinstance(config, dict) and all(isinstance(part, dict) for part in config.values()),
    }
    for key, is_right in fits.items():
        if not is_right:
            wanted = step if key == "step" and step is not None else "what a training wrote"
            raise RunError(f"the checkpoint's state.json is damaged: {key} is {state[key]!r:.40}, expected {wanted}")
    return dict(state)


def copy_into(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor], what: str) -> None:
    """Copy tensors by name. Raises: RunError in a config's words if names, shapes or dtypes differ."""
    missing, extra = sorted(targets.keys() - tensors.keys()), sorted(tensors.keys() - targets.keys())
    if missing or extra:
        raise RunError(f"{what} does not fit its config: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    for name, target in targets.items():
        found, wanted = ((tuple(t.shape), dtype_name(t)) for t in (tensors[name], target))
        for mine, its in zip(found, wanted, strict=True):
            if mine != its:
                raise RunError(f"{what} does not fit its config: {name} is {mine}, the config makes it {its}")
        with torch.no_grad():
            target.copy_(tensors[name])


def restore(stack: Stack, slot: int, files: Mapping[str, bytes]) -> float:
    """Put a checkpoint back into a slot; weights and moments come back bit for bit. Returns epoch_loss_sum."""
    state = read_state(files)
    copy_into({n: t[slot] for n, t in stack.views(stack.weights).items()}, weights_of(files), "model.safetensors")
    for flat, mine in zip((stack.moment1, stack.moment2), moments_of(files), strict=True):
        copy_into({n: t[slot] for n, t in stack.views(flat).items()}, mine, "optimizer.safetensors")
    stack.set_updates(state["step"])
    return float(state["epoch_loss_sum"])


def weights_of(files: Mapping[str, bytes]) -> dict[str, Tensor]:
    """Read a checkpoint's weights under their parameters' names."""
    return unpack(files, "model.safetensors")


def moments_of(files: Mapping[str, bytes]) -> list[dict[str, Tensor]]:
    """Read a checkpoint's first and second moments under their parameters' names."""
    found = unpack(files, "optimizer.safetensors").items()
    return [{n.removeprefix(p): t for n, t in found if n.startswith(p)} for p in ("exp_avg.", "exp_avg_sq.")]


def load_weights(model: TransformerLM, files: Mapping[str, bytes]) -> TransformerLM:
    """Fill an ordinary model from a checkpoint and return it in eval mode."""
    copy_into(dict(model.named_parameters()), weights_of(files), "model.safetensors")
    return model.eval()
