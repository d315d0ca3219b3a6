"""The projections of an attention block by name: W_Q, W_K, W_V, W_O and their biases, views of its fused parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mhsa_cli.core.model.layers import Linear

NAMES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


class Projection:
    """A projection's weight (d_out, d_in) as in torch.nn.Linear, "W_Q", or its bias (d_out,), "b_Q"; None without one.

    Reading gives a view: what is written into it, within torch.no_grad(), changes the block, and gradients flow through
    it. Assigning copies the values; ValueError if the shape differs or the block has no bias. A stack has a leading M.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, block: NamedProjections, owner: type) -> Any:  # a Tensor, of a bias also None
        kind, of = self.name.split("_")
        source = block.out_proj if of == "O" else block.qkv_proj
        whole, axis = (source.weight, -2) if kind == "W" else (source.bias, -1)
        if whole is None or of == "O":
            return whole
        at = "QKV".index(of)
        return whole.narrow(axis, sum(block.widths[:at]), block.widths[at])

    def __set__(self, block: NamedProjections, value: Tensor) -> None:
        view = block.place_of(self.name, value)
        with torch.no_grad():
            view.copy_(value)


class NamedProjections(nn.Module):
    """A block with a fused `qkv_proj`, rows of q, then k, then v, and an `out_proj`: each projection has a name."""

    qkv_proj: Linear
    out_proj: Linear
    widths: list[int]  # d_out of q, k and v
    W_Q, W_K, W_V, W_O = Projection(), Projection(), Projection(), Projection()
    b_Q, b_K, b_V, b_O = Projection(), Projection(), Projection(), Projection()  # noqa: N815

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a parameter given for W_Q or another projection is copied, not registered."""
        if name in NAMES:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def place_of(self, name: str, value: Tensor) -> Tensor:
        """Return the view that a new projection is copied to. Raises: ValueError if the shape does not fit."""
        view: Tensor | None = getattr(self, name)
        if view is None:
            raise ValueError(f"{name} {tuple(value.shape)} has no place: the block was built with bias=False")
        if value.shape != view.shape:
            order = "(d_out, d_in)" if name[0] == "W" else "(d_out,)"
            raise ValueError(f"{name} must be {tuple(view.shape)}, {order}, got {tuple(value.shape)}")
        return view

    def projections(self) -> dict[str, Tensor]:
        """Return the projections by name, W_Q to W_O and, if there are biases, b_Q to b_O: detached views."""
        named = ((name, getattr(self, name)) for name in NAMES)
        return {name: view.detach() for name, view in named if view is not None}

    def load_projections(self, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, **biases: Tensor) -> None:
        """Load separate projections, each (d_out, d_in) as in torch.nn.Linear, and b_Q to b_O; other biases become 0.

        Raises: ValueError if a shape does not fit; nothing is loaded then.
        Example: `block.load_projections(**other.projections())`
        """
        given = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O, **biases}
        if unknown := sorted(given.keys() - set(NAMES)):
            raise ValueError(f"unknown projections {', '.join(unknown)}, wanted {', '.join(NAMES)}")
        for name, value in given.items():
            self.place_of(name, value)
        for name, view in self.projections().items():
            view.copy_(given[name]) if name in given else view.zero_()
