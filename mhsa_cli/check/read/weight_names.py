"""Grouping of weights by their names, and the bias and the norm that belong to each."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor, finfo

from mhsa_cli.check.read.around import MLP, Norm
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import Slot

EPS = ("eps", "variance_epsilon", "epsilon", "_eps")  # names of what a norm adds to the variance
GATE = re.compile(r"gate|(^|[._])(w_?g|g_?proj|g|to_g)(\.|$)")


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
    """Group weights whose names differ only in a number, and read the role of each group; "list" if it has none."""
    matrices = [s for s in found if numbers[s.path].dim() >= 2 and not s.is_norm and not is_bias(s.path)]
    vectors = {s.path: numbers[s.path].flatten() for s in found if not s.is_norm and all(s is not m for m in matrices)}
    by_name: dict[str, dict[str, Matrix]] = {}
    for slot in matrices:
        bias = vectors.get(bias_path(slot.path, vectors))
        matrix = Matrix(numbers[slot.path], bias, slot.is_linear)
        by_name.setdefault(re.sub(r"(^|\.)\d+(?=\.|$)", r"\1#", slot.path), {})[slot.path] = matrix
    groups = []
    for name, members in by_name.items():
        role = role_of(name.replace("#", ""))
        if len(members) > 1 and role in ("", "qkv"):  # a list such as `linears`: each on its own, or one for each head
            groups.append(Group("list", name, tuple(members.values())))
            groups += [Group("", path, (matrix,)) for path, matrix in members.items()]
        else:
            groups.append(Group(role, name, tuple(members.values())))
    return groups


def norms_of(found: list[Slot], numbers: dict[str, Tensor], D: int) -> dict[str, Norm]:
    """Norms among the weights: "q_norm" and "k_norm", by name or by a width other than D, and "norm" if one is left."""
    holders: dict[int, list[Slot]] = {}
    for slot in found:
        if slot.is_norm:
            holders.setdefault(id(slot.holder), []).append(slot)
    norms: dict[str, Norm] = {}
    rest: list[Norm | None] = []
    for slots in holders.values():
        norm = _norm_in(slots, numbers)
        role = role_of(re.sub(r"norm|rms|ln|gamma|scale", "", ".".join(slots[0].path.lower().split(".")[-2:])))
        if role in ("q", "k") and norm is not None:
            norms[f"{role}_norm"] = norm
        else:
            rest.append(norm)
    narrow = [norm for norm in rest if norm is not None and len(norm[0]) != D]
    if not norms and narrow:
        norms |= {"q_norm": narrow[0], "k_norm": narrow[-1]}
        rest = [norm for norm in rest if all(norm is not one for one in narrow)]
    if 1 <= len(rest) <= 2 and rest[0] is not None:
        norms["norm"] = rest[0]
    if len(rest) == 2 and rest[1] is not None:
        norms["mlp_norm"] = rest[1]
    return norms


def _norm_in(slots: list[Slot], numbers: dict[str, Tensor]) -> Norm | None:
    """Weight, bias and eps of a norm."""
    norm = {slot.key: numbers[slot.path] for slot in slots}
    if "weight" not in norm or norm["weight"].dim() != 1:
        return None
    eps = next((getattr(slots[0].holder, name) for name in EPS if hasattr(slots[0].holder, name)), 1e-5)
    smallest = float(finfo(norm["weight"].dtype).eps) if norm["weight"].is_floating_point() else 0.0
    return norm["weight"], norm.get("bias"), smallest if eps is None else float(eps)  # None in torch's RMSNorm


def gate_of(found: list[Slot], numbers: dict[str, Tensor], D: int) -> tuple[Tensor, Tensor | None] | None:
    """Weight (rows, D) and bias of a gate, by its name."""
    gates = [slot for slot in found if GATE.search(slot.path.lower()) and numbers[slot.path].dim() == 2]
    if len(gates) != 1:
        return None
    weight = numbers[gates[0].path]
    weight = weight if gates[0].is_linear or weight.size(1) == D else weight.mT
    vectors = {slot.path: numbers[slot.path].flatten() for slot in found if numbers[slot.path].dim() == 1}
    return (weight, vectors.get(bias_path(gates[0].path, vectors))) if weight.size(1) == D else None


def mlp_of(found: list[Slot], numbers: dict[str, Tensor], D: int, used: Collection[str]) -> MLP | None:
    """Read two or three matrices beside those of attention as an MLP; its gate is the one so called, or the first."""
    rest = [s for s in found if s.is_linear and s.value.ndim == 2 and D in s.value.shape and s.path not in used]
    if len(rest) not in (2, 3):
        return None
    *wide, last = rest
    if len(rest) == 3 and tuple(last.value.shape) == tuple(rest[0].value.shape):  # gate, down, up: by their shapes
        last = next((s for s in rest if tuple(s.value.shape) != tuple(last.value.shape)), last)
        wide = [s for s in rest if s is not last]
    if any(s.value.shape[1] != D for s in wide) or tuple(last.value.shape) != (D, wide[0].value.shape[0]):
        return None
    vectors = {s.path: numbers[s.path] for s in found if numbers[s.path].dim() == 1}
    gates = [s for s in wide if "gate" in s.path.lower()] or wide[:1]
    up = next((s for s in wide if s is not gates[0]), wide[0])
    biases = [vectors.get(bias_path(s.path, vectors)) for s in (up, last)]
    gate = numbers[gates[0].path] if len(wide) == 2 else None
    return MLP(numbers[up.path], biases[0], numbers[last.path], biases[1], gate)


def bias_path(path: str, vectors: Collection[str]) -> str:
    """Find the bias that belongs to a weight by its name, among the paths of vectors; "" if there is none."""
    for a, b in (("weight", "bias"), ("kernel", "bias"), ("w", "b"), ("W", "b"), ("W", "B"), ("W", "bias")):
        for at in [m.start() for m in re.finditer(re.escape(a), path)]:
            other = path[:at] + b + path[at + len(a) :]
            if other in vectors:
                return other
    return ""


def more_than_attention(found: list[Slot]) -> list[str]:
    """List weights that attention does not have: those of an MLP, an embedding or a second block."""
    others = [s for s in found if s.value.ndim >= 2 and not s.is_norm and not is_bias(s.path) and not role_of(s.path)]
    named = any(role_of(s.path) in ("q", "qkv") for s in found)
    return [f"{s.path} {tuple(s.value.shape)}" for s in others] if named else []
