"""Any torch module with its optimizer and step as one safetensors file in memory, and back. No pickle here."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from mhsa_cli.core.training.checkpoint import digest, dtype_name
from mhsa_cli.errors import UPDATE, DamageError, NewerFormatError, RunError, UsageError
from mhsa_cli.records.formats import FORMAT
from mhsa_cli.text import escape

CONTENT = "mhsa_checkpoint"  # key of the metadata: a hash, and what it is of, all but the tensors as JSON


class Saved(NamedTuple):
    """A verified file: the state_dict of the module; class, groups and state_dict of the optimizer, if there is one."""

    step: int
    module: dict[str, Any]
    optimizer: dict[str, Any] | None


def pack(module: nn.Module, optimizer: Optimizer | None, step: int) -> bytes:
    """Write the state_dicts as a safetensors file, whose metadata hold what is no tensor, and the hashes of all.

    Raises: UsageError for a value that is neither a tensor nor plain data; it names the value's place.
    """
    tensors: dict[str, Tensor] = {}
    content: dict[str, Any] = {
        "format": FORMAT,
        "step": step,
        "module": _to_json(module.state_dict(), "module", tensors),
    }
    own = None if optimizer is None else {**_identity(optimizer, module), "state_dict": optimizer.state_dict()}
    content["optimizer"] = _to_json(own, "optimizer", tensors)
    text = json.dumps({**content, "tensors": digest(tensors)})
    return save(tensors, {CONTENT: f"{hashlib.sha256(text.encode()).hexdigest()} {text}"})


def unpack(data: bytes, where: str) -> Saved:
    """Read a file and compare every bit of it; `where` names it in messages.

    Raises: DamageError; RunError for another kind of file; NewerFormatError.
    """
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = header.get("__metadata__") or {}
        if CONTENT not in metadata:
            hint = "safetensors.torch.load_file reads its tensors"
            raise RunError(f"{where} was not written by save_checkpoint", hint)
        sha256, _, text = metadata[CONTENT].partition(" ")
        content = json.loads(text)
        whole = hashlib.sha256(text.encode()).hexdigest() == sha256
        if whole and content["format"] > FORMAT:
            raise NewerFormatError(f"{where} was made by a newer mhsa (format {content['format']})", UPDATE)
        if not whole or digest(tensors) != content["tensors"]:
            raise DamageError(f"{where} is damaged: its hash differs from the one that was saved")
        module, optimizer = (_from_json(content[part], tensors) for part in ("module", "optimizer"))
        return Saved(content["step"], module, optimizer)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DamageError(f"{where} is damaged, or no safetensors file") from error


def restore(saved: Saved, module: nn.Module, optimizer: Optimizer | None, where: str) -> int:
    """Load what was saved into a module and its optimizer, bit for bit, and return the step; `where` is for messages.

    Raises: RunError before anything is changed if a name, shape, dtype, the kind of optimizer or its groups differ.
    """
    _check_module(saved.module, module.state_dict(), where)
    if optimizer is not None:
        _check_optimizer(saved.optimizer, _identity(optimizer, module), where)
    module.load_state_dict(saved.module)
    if optimizer is not None and saved.optimizer is not None:
        state = saved.optimizer["state_dict"]
        optimizer.load_state_dict(state)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for at, own in state["state"].items():
            found = optimizer.state[parameters[at]]
            optimizer.state[parameters[at]] = {name: _exact(value, found[name]) for name, value in own.items()}
    return saved.step


def _exact(saved: Any, loaded: Any) -> Any:
    """Return a loaded state in the dtypes of the saved one: torch converts it to the parameter's, which rounds."""
    if isinstance(saved, Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device)
    if isinstance(saved, dict):
        return {key: _exact(value, loaded[key]) for key, value in saved.items()}
    if isinstance(saved, list | tuple):
        return type(saved)(map(_exact, saved, loaded))
    return loaded


def _check_module(saved: dict[str, Any], own: dict[str, Any], where: str) -> None:
    missing, extra = [name for name in own if name not in saved], [name for name in saved if name not in own]
    if missing or extra:
        parts = [("lacks", missing), ("has no place in the module for", extra)]
        lists = [f"{words} {_shortened(names)}" for words, names in parts if names]
        raise RunError(f"{where} {' and '.join(lists)}", "build the module with the sizes and names of the saved one")
    for name, value in own.items():
        found, wanted = _form(saved[name]), _form(value)
        if found != wanted:
            raise RunError(f"{where}: {escape(name)} is {found} there, {wanted} in the module")


def _check_optimizer(saved: dict[str, Any] | None, own: dict[str, Any], where: str) -> None:
    if saved is None:
        raise RunError(
            f"{where} was saved without an optimizer", "load_checkpoint(path, module) loads the module alone"
        )
    if saved["class"] != own["class"]:
        raise RunError(f"{where} was saved with the optimizer {saved['class']}, this one is {own['class']}")
    for at, (found, wanted) in enumerate(zip(saved["groups"], own["groups"], strict=False)):
        for one, other in zip(found, wanted, strict=False):
            if one != other:
                raise RunError(
                    f"{where}: group {at} of the optimizer has {_named(one)} where this one has {_named(other)}"
                )
    sizes, wanted_sizes = ([len(group) for group in groups] for groups in (saved["groups"], own["groups"]))
    if sizes != wanted_sizes:
        raise RunError(
            f"{where}: the groups of the optimizer hold {sizes} parameters, those of this one {wanted_sizes}"
        )


def _identity(optimizer: Optimizer, module: nn.Module) -> dict[str, Any]:
    """Describe an optimizer: its class, and for each group the names and shapes of its parameters."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = [[[names.get(id(p)), list(p.shape)] for p in group["params"]] for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "groups": groups}


def _named(parameter: list[Any]) -> str:
    name, shape = parameter
    return f"{'a parameter of another module' if name is None else escape(name)} {tuple(shape)}"


def _shortened(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(escape, names[:most])) + more


def _form(value: Any) -> str:
    return f"{tuple(value.shape)} {dtype_name(value)}" if isinstance(value, Tensor) else type(value).__name__


def _to_json(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """Turn a state into plain JSON; tensors go into `tensors`, by place. `_from_json` gives the same state."""
    if isinstance(value, Tensor):
        if value.is_meta or value.is_quantized or value.is_complex() or value.layout != torch.strided:
            raise UsageError(
                f"{escape(place)} cannot be saved: a {value.dtype} tensor, {value.layout} on {value.device}"
            )
        while place in tensors:  # keys may hold dots
            place += "'"
        # A copy, as tensors may share memory (tied weights), which a safetensors file cannot say.
        tensors[place] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": place}
    if isinstance(value, dict):
        return {
            "dict": [[_plain(key, place), _to_json(item, f"{place}.{key}", tensors)] for key, item in value.items()]
        }
    if isinstance(value, list | tuple):
        items = [_to_json(item, f"{place}.{at}", tensors) for at, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    return _plain(value, place)


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)  # a number of NumPy is a float, too
    if value is None:
        return None
    wanted = "tensors, numbers, texts, lists and dicts can be saved without pickle"
    raise UsageError(f"{escape(place)} is a {type(value).__name__}: only {wanted}")


def _from_json(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_from_json(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    [(kind, inside)] = value.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "float":
        return float(inside)
    if kind == "tuple":
        return tuple(_from_json(inside, tensors))
    return {_from_json(key, tensors): _from_json(item, tensors) for key, item in inside}
