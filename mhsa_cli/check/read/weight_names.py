"""Grouping of weights by their names, and the bias and the norm that belong to each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import Slot


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight of two axes or more, with its bias; that of a Linear is (out, in)."""

    weight: Tensor
    bias: Tensor | None
    is_linear: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Matrices that belong together: one, or a list with one for each head."""

    role: str
    path: str
    matrices: tuple[Matrix, ...]


def groups_of(found: list[Slot], numbers: dict[str, Tensor]) -> list[Group]:
    """Group weights whose names differ only in a number, and read the role of each group."""
    matrices = [s for s in found if numbers[s.path].dim() >= 2 and not s.is_norm and not is_bias(s.path)]
    vectors = {s.path: numbers[s.path].flatten() for s in found if not s.is_norm and all(s is not m for m in matrices)}
    by_name: dict[str, dict[str, Matrix]] = {}
    for slot in matrices:
        matrix = Matrix(numbers[slot.path], _bias_of(slot.path, vectors), slot.is_linear)
        by_name.setdefault(re.sub(r"(^|\.)\d+(?=\.|$)", r"\1#", slot.path), {})[slot.path] = matrix
    groups = []
    for name, members in by_name.items():
        role = role_of(name.replace("#", ""))
        if len(members) > 1 and not role:  # a list such as `linears`: each on its own
            groups += [Group("", path, (matrix,)) for path, matrix in members.items()]
        else:
            groups.append(Group(role, name, tuple(members.values())))
    return groups


def norm_of(found: list[Slot], numbers: dict[str, Tensor]) -> tuple[Tensor, Tensor | None, float] | None:
    """Weight, bias and eps of the LayerNorm among the weights, if there is exactly one."""
    holders = {id(s.holder): s.holder for s in found if s.is_norm}
    if len(holders) != 1:
        return None
    (holder,) = holders.values()
    norm = {s.key: numbers[s.path] for s in found if s.is_norm}
    if "weight" not in norm or norm["weight"].dim() != 1:
        return None
    return norm["weight"], norm.get("bias"), float(getattr(holder, "eps", None) or 1e-5)  # None in an RMSNorm


def _bias_of(path: str, vectors: dict[str, Tensor]) -> Tensor | None:
    for a, b in (("weight", "bias"), ("kernel", "bias"), ("w", "b"), ("W", "b"), ("W", "B"), ("W", "bias")):
        for at in [m.start() for m in re.finditer(re.escape(a), path)]:
            other = path[:at] + b + path[at + len(a) :]
            if other in vectors:
                return vectors[other]
    return None


def more_than_attention(found: list[Slot]) -> list[str]:
    """List weights that attention does not have: those of an MLP, an embedding or a second block."""
    others = [s for s in found if s.value.ndim >= 2 and not s.is_norm and not is_bias(s.path) and not role_of(s.path)]
    named = any(role_of(s.path) in ("q", "qkv") for s in found)
    return [f"{s.path} {tuple(s.value.shape)}" for s in others] if named else []
