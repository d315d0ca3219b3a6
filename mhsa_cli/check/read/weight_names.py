"""Which weights belong together by their names, and which bias and norm go with which."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import Slot


@dataclass(frozen=True, slots=True)
class Group:
    """Weights that belong together: one tensor, or one for each head in a list."""

    role: str
    path: str
    slots: tuple[Slot, ...]


def groups_of(mats: list[Slot]) -> list[Group]:
    """Put weights together whose names differ by a number only, and read each role."""
    by_name: dict[str, list[Slot]] = {}
    for slot in mats:
        by_name.setdefault(re.sub(r"(^|\.)\d+(?=\.|$)", r"\1#", slot.path), []).append(slot)
    found = []
    for name, members in by_name.items():
        role = role_of(name.replace("#", ""))
        if len(members) > 1 and not role:  # a list such as `linears`: each of its own
            found += [Group("", m.path, (m,)) for m in members]
        else:
            found.append(Group(role, name, tuple(members)))
    return found


def norm_of(found: list[Slot], numbers: dict[str, Tensor]) -> tuple[Tensor, Tensor | None, float] | None:
    """Give the one LayerNorm among the weights: weight, bias, eps."""
    holders = {id(s.holder): s.holder for s in found if s.norm}
    if len(holders) != 1:
        return None
    (holder,) = holders.values()
    mine = {s.key: numbers[s.path] for s in found if s.norm}
    if "weight" not in mine or mine["weight"].dim() != 1:
        return None
    return mine["weight"], mine.get("bias"), float(getattr(holder, "eps", None) or 1e-5)  # an RMSNorm's may be None


def bias_of(path: str, vectors: dict[str, Tensor]) -> Tensor | None:
    """Find the bias that goes with a weight, by its name."""
    for a, b in (("weight", "bias"), ("kernel", "bias"), ("w", "b"), ("W", "b"), ("W", "B"), ("W", "bias")):
        for at in [m.start() for m in re.finditer(re.escape(a), path)]:
            other = path[:at] + b + path[at + len(a) :]
            if other in vectors:
                return vectors[other]
    return None


def more_than_attention(found: list[Slot]) -> list[str]:
    """List weights that no attention has: those of an MLP, an embedding or a second block around it."""
    others = [s for s in found if s.value.ndim >= 2 and not s.norm and not is_bias(s.path) and not role_of(s.path)]
    named = any(role_of(s.path) in ("q", "qkv") for s in found)
    return [f"{s.path} {tuple(s.value.shape)}" for s in others] if named else []
