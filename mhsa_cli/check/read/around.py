"""What stands around attention in a block: a LayerNorm and an MLP."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

Norm = tuple[Tensor, Tensor | None, float]  # weight, bias and eps
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}


class MLP(NamedTuple):
    """The weights of an MLP around attention: out(activation(up(x))), or out(activation(gate(x)) * up(x))."""

    up: Tensor
    up_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate: Tensor | None = None


def layer_norm(x: Tensor, norm: Norm | None) -> Tensor:
    """Normalise the features of each token; without a norm of their number, leave them."""
    if norm is None or x.size(-1) != len(norm[0]):
        return x
    weight, bias, eps = norm
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def apply_mlp(mlp: MLP, activation: str, x: Tensor) -> Tensor:
    """Compute an MLP, with a gate if it has one (SwiGLU)."""
    mlp = MLP(*mlp)  # a plain tuple if it was read from a document
    up = functional.linear(x, mlp.up, mlp.up_bias)
    act = ACTIVATIONS[activation]
    inner = act(functional.linear(x, mlp.gate)) * up if mlp.gate is not None else act(up)
    return functional.linear(inner, mlp.out, mlp.out_bias)
