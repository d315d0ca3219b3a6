"""Linear maps, embeddings, norms and dropout, for one model or a stack of M models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mhsa_cli.core.ranges import check_dtype, check_indices

AnyDevice = torch.device | str | None
EPS = 1e-5  # of both norms, torch's default for layer_norm


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply one linear map, or M of them to M inputs in one batched product.

    Shapes: x (..., in), weight (out, in), bias (out,); or x (M, ..., in), weight (M, out, in), bias (M, out).
    """
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    flat = x.reshape(x.size(0), -1, x.size(-1))  # (M, B*T, in)
    if one_by_one(x, flat.size(1), *weight.shape[1:]):
        biases = [None] * len(x) if bias is None else bias.split(1)
        return torch.cat([linear(*each) for each in zip(x.split(1), weight.split(1), biases, strict=True)])
    maps = weight.transpose(1, 2)
    out = torch.bmm(flat, maps) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, maps)
    return out.view(*x.shape[:-1], weight.size(1))


def one_by_one(x: Tensor, *sizes: int) -> bool:
    """Whether a stack's products must be computed model by model for the bits of single models.

    A batched product rounds differently from a single one where one side is a vector (1 among the sizes) and, on a CPU,
    in half precision.
    """
    half = x.device.type == "cpu" and (x.dtype.itemsize < 4 or torch.is_autocast_enabled("cpu"))
    return len(x) > 1 and (half or 1 in sizes)


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply a (..., n, k) by b (..., k, m); in a stack (M, B, H, ...), with the bits of single models."""
    several = a.dim() == 5 and a.shape[1:3].numel() > 1  # batched for a single model too
    if a.dim() == b.dim() == 5 and one_by_one(a, *(() if several else (*a.shape[-2:], b.size(-1)))):
        return torch.cat([x @ y for x, y in zip(a.split(1), b.split(1), strict=True)])
    return a @ b


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Look ids up: ids (...) in table (V, D), or ids (M, ...) each in its own model's table (M, V, D)."""
    if table.dim() == 2:
        return F.embedding(ids, table)
    M, V, D = table.shape
    if M == 1:
        return F.embedding(ids, table.view(V, D))
    offset = torch.arange(0, M * V, V, device=ids.device).view(M, *[1] * (ids.dim() - 1))
    return F.embedding(ids + offset, table.view(M * V, D))


VECTOR = 64  # numbers: a multiple of the vector width of any CPU


def padded(n: int) -> int:
    """Round a buffer's length up to whole vectors, so that bits do not depend on the place in the buffer.

    For some functions torch rounds the remainder after the last whole vector differently.
    """
    return -(-n // VECTOR) * VECTOR


def slotwise(function: Callable[[Tensor], Tensor], x: Tensor, stacked: bool) -> Tensor:
    """Apply an elementwise function, in a stack model by model: see `padded` for the reason."""
    return torch.stack([function(part) for part in x]) if stacked else function(x)


def broadcast(parameter: Tensor, x: Tensor) -> Tensor:
    """View a vector (D,) or a stack of vectors (M, D) to broadcast with x (..., D) or (M, ..., D)."""
    if parameter.dim() == 1:
        return parameter
    return parameter.view(parameter.size(0), *[1] * (x.dim() - 2), parameter.size(-1))


class WithTables(nn.Module):
    """A module with buffers computed from its sizes: not saved, and computed again after `to_empty`."""

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        """Compute the buffers, by name."""
        return {}

    def register_tables(self, device: AnyDevice = None, dtype: torch.dtype | None = None) -> None:
        """Register the tables as buffers, once the sizes are set."""
        for name, table in self.tables(device).items():
            self.register_buffer(name, table.to(device, dtype), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or convert the module, then fill new buffers, which may be empty."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        new = {name: b for name, b in self._buffers.items() if b is not None and b is not before[name]}
        if any(not b.is_meta for b in new.values()):
            for name, table in self.tables("cpu").items():
                if name in new:
                    new[name].copy_(table)
        return self


class Linear(nn.Module):
    """A linear map of the last axis, x W^T + b, drawn as torch.nn.Linear draws it: uniform in +-1/sqrt(d_in).

    d_in, d_out: widths of input and output. bias: whether b (d_out,) is added. device, dtype: those of the parameters.
    """

    def __init__(
        self, d_in: int, d_out: int, bias: bool = True, *, device: AnyDevice = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        check_dtype(dtype)
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(d_out, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: Generator | None = None, std: float | None = None) -> None:
        """Draw the weights again from `generator` or torch's own; with `std` from N(0, std^2), and biases are 0."""
        if std is not None:
            nn.init.normal_(self.weight, std=std, generator=generator)
            if self.bias is not None:
                nn.init.zeros_(self.bias)
            return
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5), generator=generator)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight.size(-1))
            nn.init.uniform_(self.bias, -bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., d_in) to (..., d_out); in a stack x (M, ..., d_in), weight (M, d_out, d_in)."""
        return linear(x, self.weight, self.bias)


class Embedding(nn.Module):
    """A table of n vectors of width d_model, drawn from N(0, 0.02^2). device, dtype: those of the table."""

    def __init__(self, n: int, d_model: int, *, device: AnyDevice = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        check_dtype(dtype)
        self.weight = nn.Parameter(torch.empty(n, d_model, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator | None = None, std: float | None = None) -> None:
        """Draw the vectors again from `generator` or torch's own, from N(0, std^2); default: 0.02."""
        nn.init.normal_(self.weight, std=0.02 if std is None else std, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up ids (...) below n: (..., d_model); in a stack ids (M, ...), weight (M, n, d_model)."""
        check_indices("id", ids, self.weight.size(-2), self.weight.device)
        return embed(ids, self.weight)


class LayerNorm(nn.Module):
    """Normalise the last axis, d_model wide, to mean 0 and variance 1, then scale and, with `bias`, shift.

    eps: added to the variance. Source: Ba et al. 2016.
    """

    def __init__(self, d_model: int, bias: bool = True, eps: float = EPS) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (..., D); in a stack x (M, ..., D), weight and bias (M, D)."""
        shape, scale, shift = x.shape[-1:], self.weight, self.bias
        if scale.dim() == 1:
            return F.layer_norm(x, shape, scale, shift, self.eps)
        # One call per model with scale and shift: separate passes for them would be slower.
        shifts = [None] * len(scale) if shift is None else shift
        each = zip(x, scale, shifts, strict=True)
        return torch.stack([F.layer_norm(part, shape, one, by, self.eps) for part, one, by in each])


class RMSNorm(nn.Module):
    """Divide the last axis, d_model wide, by its root mean square, then scale; `bias` is not used.

    eps: added to the mean square. Source: Zhang and Sennrich 2019.
    """

    def __init__(self, d_model: int, bias: bool = True, eps: float = EPS) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (..., D); in a stack x (M, ..., D), weight (M, D)."""
        return F.rms_norm(x, x.shape[-1:], eps=self.eps) * broadcast(self.weight, x)


class Dropout(nn.Module):
    """Zero entries with probability p while training and scale the rest by 1/(1-p).

    `generators`, one per model of a stack, make a model's draws independent of the stack; default: torch's generator.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be in [0, 1), got {p}")
        self.p = p
        self.generators: Sequence[Generator] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of x of any shape; in a stack its first axis is M."""
        if not self.training or self.p == 0:
            return x
        if self.generators is None:
            return F.dropout(x, self.p, training=True)
        draws = [torch.rand(x.shape[1:], generator=g, device=x.device) for g in self.generators]
        return x * (torch.stack(draws) >= self.p) / (1 - self.p)
