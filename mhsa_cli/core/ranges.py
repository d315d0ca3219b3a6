"""Checks of sizes, ids, masks and positions. Each raises ValueError with what was found and what is wanted."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor


def check_size(name: str, size: int) -> None:
    """Check that a size is an integer >= 1."""
    if not isinstance(size, Integral) or isinstance(size, bool):
        raise ValueError(f"{name} ({size!r}) must be a whole number")
    if size < 1:
        raise ValueError(f"{name} ({size}) must be at least 1")


def check_heads(d_model: int, n_heads: int, n_kv_heads: int, d_head: int | None = None) -> int:
    """Check that n_heads divides d_model, unless `d_head` is given, and n_kv_heads n_heads. Returns d_head."""
    for name, size in (("d_model", d_model), ("n_heads", n_heads), ("n_kv_heads", n_kv_heads)):
        check_size(name, size)
    if d_head is not None:
        check_size("d_head", d_head)
    elif d_model % n_heads:
        raise ValueError(f"d_model ({d_model}) must be divisible by n_heads ({n_heads})")
    if n_heads % n_kv_heads:
        raise ValueError(f"n_heads ({n_heads}) must be divisible by n_kv_heads ({n_kv_heads})")
    return d_model // n_heads if d_head is None else d_head


def check_dtype(dtype: torch.dtype | None) -> None:
    """Check that a dtype is floating-point."""
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype ({dtype}) must be a floating-point type")


def check_vectors(*inputs: Tensor) -> None:
    """Check that inputs are vectors, not ids."""
    for x in inputs:
        if not x.is_floating_point():
            raise ValueError(f"inputs must be floating-point vectors, got {x.dtype}")


def _broadcasts(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether one shape broadcasts to another without enlarging it."""
    extra = len(wanted) - len(given)
    return extra >= 0 and all(g in (1, w) for g, w in zip(given, wanted[extra:], strict=True))


def check_boolean(name: str, mask: Tensor) -> None:
    """Check that a mask is boolean: the two meanings that numbers have in masks cannot be told apart."""
    if mask.dtype != torch.bool:
        way_out = f"pass `{name} == 0` if it is added to scores, `{name} != 0` if 1 = may attend"
        raise ValueError(f"{name} must be boolean (True = may attend), got {mask.dtype}: {way_out}")


def check_mask(mask: Tensor, wanted: tuple[int, ...], visible: Tensor) -> None:
    """Check that a mask is boolean, broadcasts to the weights' shape (..., H, Tq, Tk), and is not an inverted one.

    Refused as inverted: a mask that shows keys, but none that the block's own mask `visible` (Tq, Tk) shows too.
    Compiled and exported models skip that.
    """
    check_boolean("mask", mask)
    given = tuple(mask.shape)
    if not _broadcasts(given, wanted):
        each = (*wanted[:-3], 1, *wanted[-2:])
        raise ValueError(f"mask {given} does not broadcast to the weights, {wanted}; a mask per row is {each}")
    if torch.compiler.is_compiling() or mask.is_meta or bool((mask & visible).any()) or not bool(mask.any()):
        return
    found = "mask (True = may attend) shows only keys that the block's own mask hides: no query would attend to any"
    raise ValueError(f"{found}; pass `~mask` if True means hidden in it")


def _check_whole(what: str, indices: Tensor, device: torch.device | None) -> None:
    """Check that indices are integers, and not meta tensors for a `device` with data."""
    if indices.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{what}s must be int64 or int32, got {indices.dtype}")
    if indices.is_meta and (device is None or device.type != "meta"):
        raise ValueError(f"{what}s must be on {device or 'cpu'}, got meta tensors, which have no data")


def check_indices(what: str, indices: Tensor, count: int, device: torch.device | None = None) -> None:
    """Check that all indices are in 0..count - 1; the error names the first that is not.

    Torch would read a negative index from the table's end, a large one from the next model of a stack, or abort a CUDA
    process. Compiled and exported models skip this check.
    """
    _check_whole(what, indices, device)
    if torch.compiler.is_compiling() or indices.is_meta or not indices.numel():
        return
    low, high = torch.stack(torch.aminmax(indices)).tolist()  # one transfer from a device
    if low >= 0 and high < count:
        return
    at = tuple(((indices < 0) | (indices >= count)).nonzero()[0].tolist())
    raise ValueError(f"{what} {int(indices[at])} at {at} is outside 0..{count - 1}")


def check_positions(pos: Tensor, rows: tuple[int, ...], device: torch.device) -> None:
    """Check that positions are integers of the shape of rows (..., T), or (T,)."""
    _check_whole("position", pos, device)
    given = tuple(pos.shape)
    if not given or given[-1] != rows[-1] or not _broadcasts(given, rows):
        raise ValueError(f"positions must be ({rows[-1]},) or {rows}, got {given}")
