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

from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.stack import Stack
from mhsa_cli.errors import NewerFormatError, RunError
from mhsa_cli.records.formats import FORMAT


def unpack(data: bytes, name: str) -> dict[str, Tensor]:
    """Read a safetensors file. Raises: RunError naming the file if it is not one."""
    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise RunError(f"{name} is not a readable safetensors file") from error


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


def read_state(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Read the loop's position. Raises: RunError if a key is missing, NewerFormatError if a newer mhsa wrote it."""
    try:
        state = json.loads(files["state.json"])
        found = state["format"]
        if type(found) is int and found > FORMAT:
            why = f"the checkpoint was made by a newer mhsa (format {found}, this one reads up to {FORMAT})"
            raise NewerFormatError(why, "update mhsa-cli to read it")
        state["step"], state["seed"], state["epoch_loss_sum"], state["config"]  # noqa: B018
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"the checkpoint's state.json lacks what a resume needs ({error})") from error
    if type(found) is not int or found != FORMAT:  # JSON's true equals 1
        raise RunError(f"the checkpoint has the unknown format number {found!r}: expected {FORMAT}")
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
    moments = unpack(files["optimizer.safetensors"], "optimizer.safetensors")
    for prefix, flat in (("exp_avg.", stack.moment1), ("exp_avg_sq.", stack.moment2)):
        mine = {k.removeprefix(prefix): t for k, t in moments.items() if k.startswith(prefix)}
        copy_into({n: t[slot] for n, t in stack.views(flat).items()}, mine, "optimizer.safetensors")
    stack.set_updates(state["step"])
    return float(state["epoch_loss_sum"])


def weights_of(files: Mapping[str, bytes]) -> dict[str, Tensor]:
    """Read a checkpoint's weights under their parameters' names."""
    return unpack(files["model.safetensors"], "model.safetensors")


def load_weights(model: TransformerLM, files: Mapping[str, bytes]) -> TransformerLM:
    """Fill an ordinary model from a checkpoint and return it in eval mode."""
    copy_into(dict(model.named_parameters()), weights_of(files), "model.safetensors")
    return model.eval()
