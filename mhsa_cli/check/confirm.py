"""Confirm a right grade outside the process that ran the block: fresh weights, a fresh input, a reference of its own.

The process of the block claims how its weights are read, and answers a seed with one output. Another process, in which
no code of the user's ever ran, draws the same weights and input, computes the reference, and compares.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.check.call.instance import STD
from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.grade import grade
from mhsa_cli.check.laws import LAWS
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.search import random_input
from mhsa_cli.check.read.reference import Reference, Roles, Spec
from mhsa_cli.check.read.weight_layouts import index_layouts
from mhsa_cli.check.sentences import list_names
from mhsa_cli.check.tensors import max_difference, scale_of
from mhsa_cli.records.check import REFERENCE

__all__ = ["answer", "claim", "grade", "refusal"]

TOLERANCE = 1e-3  # of the largest output: far above the rounding of float32, far below another computation
MOST = 1 << 28  # numbers in the weights, the input or the scores of a claim


def claim(c: Context) -> dict[str, Any] | None:
    """Say how a right block is read: its weights, the place of each role in them, the right form, and the sizes.

    None of a block that equals no variant: it cannot be right.
    """
    if c.match is None:
        return None
    s, places = c.instance.sizes, _places(c)
    read = torch.zeros(sum(c.numbers[slot.path].numel() for slot in c.slots), dtype=torch.bool)
    for index in _tensors(list(places.values())):
        if not index.is_floating_point():
            read[index] = True
    counts = [c.numbers[slot.path].numel() for slot in c.slots]
    drawn = [slot for slot, part in zip(c.slots, read.split(counts), strict=True) if bool(part.any())]
    kept = torch.cat([part.any().expand(len(part)) for part in read.split(counts)])
    return {
        "paths": [slot.path for slot in drawn],
        "shapes": [list(slot.value.shape) for slot in drawn],
        "norms": [slot.is_norm and slot.path.endswith("weight") for slot in drawn],
        "roles": {name: _coded(place, kept.cumsum(0) - 1) for name, place in places.items()},
        "spec": c.right_spec._asdict(),
        "sizes": [s.batch_size, s.seq_len, s.d_model],
        "positions": c.positions(s.seq_len) is not None,
    }


def answer(c: Context, claimed: Mapping[str, Any] | None, seed: int) -> dict[str, Any] | None:
    """Run a new instance with the weights and the input of a seed; weights that no role reads stay as they are."""
    if claimed is None:
        return None
    s, instance = c.instance.sizes, c.rebuild()
    slots = {slot.path: slot for slot in instance.slots}
    for path, new in zip(claimed["paths"], _draw(claimed["shapes"], claimed["norms"], seed), strict=True):
        slots[path].write(new)
    y = c.y(random_input(s.batch_size, s.seq_len, s.d_model, seed + 1), instance)
    return {"shape": list(y.shape), "y": _bytes(y)}


def refusal(laws: Sequence[Sequence[Any]], claimed: Any, seed: int, answered: Any, causal: bool | None) -> Any:
    """Say why a right grade is not confirmed, as a code and a fact; None if it is.

    `laws` are the id and the outcome of each; `causal` is what the user requires.
    """
    outcomes = {str(name): passed for name, passed in laws}
    broken = [name for name, law in LAWS.items()
              if name not in outcomes or (outcomes[name] is False and not law.edge)]  # fmt: skip
    if broken or outcomes[REFERENCE] is not True:
        return "laws", list_names(broken or [REFERENCE])
    try:
        return _differs(claimed, seed, answered, causal)
    except Exception as error:  # whatever a forged document holds
        return "claim", type(error).__name__


def _differs(claimed: Mapping[str, Any], seed: int, answered: Mapping[str, Any], causal: bool | None) -> Any:
    B, T, D = claimed["sizes"]
    H = claimed["roles"]["q"]["shape"][0]
    if max(B * T * D, B * H * T * T, sum(map(math.prod, claimed["shapes"]))) > MOST:
        return "claim", "sizes"
    numbers = torch.cat([drawn.flatten() for drawn in _draw(claimed["shapes"], claimed["norms"], seed)])
    coded, spec = claimed["roles"], claimed["spec"]
    roles = Roles(**{name: _decoded(one, numbers) for name, one in coded.items()})
    used = torch.cat([_read(coded[name]["at"], torch.int32) for name in ("q", "k", "v", "out")
                      if "at" in (coded[name] or ())])  # fmt: skip
    if len(used.unique()) < len(used) or (roles.out is None and roles.n_heads > 1):
        return "fault", "roles"
    other_kind = any(spec.get(stage, "none") != "none" for stage in ("norm", "bias"))  # with a scale of its own
    if fault := _fault_in({**spec, "scale": "d_head"} if other_kind else spec, causal):
        return "fault", fault
    positions = 2 * torch.arange(T) if claimed["positions"] else None
    expected = Reference(roles, random_input(B, T, D, seed + 1), positions).output(Spec(**spec))
    off = max_difference(_read(answered["y"], torch.float64).view(answered["shape"]), expected)
    return None if off <= TOLERANCE * scale_of(expected) else ("differs", f"{off:.2g}")


def _fault_in(spec: Mapping[str, Any], causal: bool | None) -> str:
    """Name the known fault that a form has, or ""."""
    for name, fault in FAULTS.items():
        forms = [form for form in fault.forms if form and (causal or form != {"mask": "none"})]
        if any(all(spec.get(stage) == how for stage, how in form.items()) for form in forms):
            return name
    return "scale_constant" if str(spec["scale"]).startswith("x") else ""


def _draw(shapes: Sequence[Sequence[int]], norms: Sequence[bool], seed: int) -> Iterator[Tensor]:
    """Draw the weights of a seed: wide ones, those of a norm around one."""
    generator = torch.Generator().manual_seed(seed)
    for shape, is_norm in zip(shapes, norms, strict=True):
        new = STD * torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
        yield 1 + new if is_norm else new


def _places(c: Context) -> dict[str, Any]:
    """Give for each role the indices of its numbers in all weights laid end to end; what is computed stays as it is."""
    assert c.match is not None
    roles = {one.name: getattr(c.match.layout.roles, one.name) for one in fields(Roles)}
    numbers = torch.cat([c.numbers[slot.path].flatten() for slot in c.slots])
    ascending, order = numbers.sort()
    if bool((ascending[1:] == ascending[:-1]).any()):  # float32: the same number twice
        known = index_layouts(c.slots, c.instance.sizes.d_model, c.heads, [c.match.layout]).get(c.match.layout.name)
        if known is not None:
            return {name: getattr(known, name) for name in roles}

    def place(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(place, value))
        if not isinstance(value, Tensor):
            return value
        at = order[torch.searchsorted(ascending, value.contiguous()).clamp_max(len(order) - 1)]
        return at if torch.equal(numbers[at], value) else value

    return {name: place(value) for name, value in roles.items()}


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Tensor):
        yield value


def _coded(value: Any, new: Tensor) -> Any:
    """Write roles as JSON, with each index replaced by a `new` one; tensors as bytes."""
    if isinstance(value, tuple):
        return [_coded(one, new) for one in value]
    if not isinstance(value, Tensor):
        return value
    if value.is_floating_point():
        return {"shape": list(value.shape), "numbers": _bytes(value)}
    return {"shape": list(value.shape), "at": _bytes(new[value].to(torch.int32))}


def _decoded(coded: Any, numbers: Tensor) -> Any:
    """Read roles, with the numbers at their indices."""
    if isinstance(coded, list):
        return tuple(_decoded(one, numbers) for one in coded)
    if not isinstance(coded, dict):
        return coded
    if "numbers" in coded:
        return _read(coded["numbers"], torch.float64).view(coded["shape"])
    return numbers[_read(coded["at"], torch.int32).long()].view(coded["shape"])


def _bytes(values: Tensor) -> str:
    return base64.b64encode(values.contiguous().numpy().tobytes()).decode("ascii")


def _read(text: str, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=dtype)
