"""Masks by name: which keys (columns) each query (row) sees, for any number of tokens, and the name of one measured.

The name of a mask of another kind holds its numbers: "window 3" lets a query see itself and the two tokens before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Masks that are faults where a causal one is wanted.
WRONG = ("none", "inverted", "transposed", "sees_next", "sees_two", "hides_self", "earlier_and_first")
# Masks of other kinds of attention, by the first word of their names, and those of them that show later tokens.
KINDS = {
    "window": "sliding_window",
    "around": "sliding_window",
    "prefix": "prefix",
    "block": "blocks",
    "blocks_before": "blocks",
    "dilated": "dilated",
    "distances": "dilated",
    "others": "others",
}
LOOKS_AHEAD = ("around", "prefix", "block", "blocks_before", "others")


def allowed(mask: str, T: int) -> Tensor:
    """Make a mask (T, T), or (H, T, T) for one that differs by head: True where a query may attend to a key."""
    if mask.startswith("by_head "):
        return torch.stack([allowed(one, T) for one in mask.removeprefix("by_head ").split(",")])
    name, _, number = mask.partition(" ")
    ones = torch.ones(T, T, dtype=torch.bool)
    query, key = torch.arange(T).view(-1, 1), torch.arange(T)
    n = int(number) if number.isdigit() else 1
    match name:
        case "distances":
            seen = torch.tensor([int(one) for one in number.split(";")])
            return torch.isin(query - key, seen)
        case "none":
            return ones
        case "inverted":
            return ones.triu(1)
        case "transposed":
            return ones.triu()
        case "sees_next":
            return ones.tril(1)
        case "sees_two":
            return ones.tril(2)
        case "hides_self":
            return ones.tril(-1)
        case "earlier_and_first":
            return ones.tril(-1) | ((query == 0) & (key == 0))
        case "window":
            return ones.tril() & (query - key < n)
        case "around":
            return (query - key).abs() < n
        case "prefix":
            return ones.tril() | (key < n)
        case "block":
            return query // n == key // n
        case "blocks_before":
            return key // n <= query // n
        case "dilated":
            return ones.tril() & ((query - key) % n == 0)
        case "others":
            return query != key
    return ones.tril()  # "causal"; "after" masks with it after the softmax


def name_of(visible: Tensor) -> str:
    """Name a measured mask (T, T), or (H, T, T); "" if it has no sensible structure."""
    if visible.dim() == 3:
        if bool((visible == visible[0]).all()):
            return name_of(visible[0])
        names = [name_of(one) for one in visible]
        sensible = all(name in ("causal", "none") or name.partition(" ")[0] in KINDS for name in names)
        return f"by_head {','.join(names)}" if sensible else ""
    T = len(visible)
    numbered = [f"{name} {n}" for n in range(2, T) for name in ("window", "around", "dilated", "prefix", "block",
                                                                "blocks_before")]  # fmt: skip
    names = ["causal", *WRONG, "others", "window 1", *numbered]
    seen = [n for n in range(T) if bool(visible.diagonal(-n).all())]
    names.append(f"distances {';'.join(map(str, seen))}" if seen[:1] == [0] else "causal")
    return next((name for name in names if torch.equal(allowed(name, T), visible)), "")


def rows(visible: Tensor) -> list[str]:
    """Draw a mask (T, T): a row for each query, "x" for each key that it sees; heads (H, T, T) with "" between them."""
    if visible.dim() == 3:
        return [row for n, head in enumerate(visible) for row in ([""] if n else []) + rows(head)]
    return ["".join("x" if key else "." for key in row) for row in visible.tolist()]


def kind_of(mask: str) -> str:
    """Kind of attention that a mask makes, or "" for a plain one."""
    name = mask.partition(" ")[0]
    return "mask_by_head" if name == "by_head" else KINDS.get(name, "")


def looks_ahead(mask: str) -> bool:
    """Whether a mask of another kind shows later tokens by design."""
    return kind_of(mask) != "" and any(
        one.partition(" ")[0] in LOOKS_AHEAD for one in mask.removeprefix("by_head ").split(",")
    )
