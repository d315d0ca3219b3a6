"""The parts of a model, each with a forward and a backward pass over preallocated tensors.

A forward pass reads the input and writes the output; a backward pass fills the gradients of input and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from mhsa_cli.core.model import layers
from mhsa_cli.core.model.positions import LearnedPositions, Positions, SinusoidalPositions
from mhsa_cli.core.training.backward import vector_jacobian

Take = Callable[[str, Sequence[int], torch.dtype], Tensor]  # returns a buffer by name, shape and dtype
Named = Mapping[str, Tensor]  # parameters of some models, or their gradients, by name
Pair = tuple[Tensor, Tensor]  # values and d loss / d values
Function = Callable[[Tensor, dict[str, Tensor]], Tensor]  # of x and of parameters by name


class Part(Protocol):
    """A step of the forward pass, with its step of the backward pass."""

    def forward(self) -> None: ...

    def backward(self) -> None: ...


class Embedding:
    """Token plus position embeddings: ids (M, B, T) to x (M, B*T, D). `tied`: the table already has a gradient."""

    def __init__(
        self, positions: Positions, weights: Named, gradients: Named, take: Take, x: Pair, T: int, tied: bool
    ) -> None:
        table, gradient = weights["tok_emb.weight"], gradients["tok_emb.weight"]
        M, V, D = table.shape
        rows = (M, x[0].size(1) // T, T, D)
        self.table, self.d_table, self.tied = table.view(M * V, D), gradient.view(M * V, D), tied
        self.x, self.d_x = (t.view(-1, D) for t in x)
        self.x_rows, self.d_x_rows = (t.view(rows) for t in x)
        self.first = torch.arange(0, M * V, V, device=table.device).view(M, 1, 1)  # offset of each model's table
        self.ids = take("ids", rows[:3], torch.int64)
        self.flat_ids = self.ids.view(-1)
        self.index_add_is_deterministic = not table.is_cuda  # CUDA adds in any order
        self.positions = positions.table[:T].to(table.dtype) if isinstance(positions, SinusoidalPositions) else None
        self.d_positions = None
        if isinstance(positions, LearnedPositions):
            name = "positions.pos_emb.weight"
            self.positions, self.d_positions = weights[name][:, :T].unsqueeze(1), gradients[name][:, :T]
            gradients[name].zero_()  # rows beyond T stay zero

    def forward(self) -> None:
        torch.index_select(self.table, 0, self.flat_ids, out=self.x)
        if self.positions is not None:
            self.x_rows += self.positions

    def backward(self) -> None:
        if not self.tied:
            self.d_table.zero_()
        if self.index_add_is_deterministic:
            self.d_table.index_add_(0, self.flat_ids, self.d_x)
        else:
            back = torch.ops.aten.embedding_dense_backward
            self.d_table.add_(back(self.d_x, self.flat_ids, len(self.d_table), -1, False))
        if self.d_positions is not None:
            torch.sum(self.d_x_rows, 1, out=self.d_positions)


class Linear:
    """A linear layer: x (M, N, in) to y (M, N, out)."""

    def __init__(self, name: str, weights: Named, gradients: Named, x: Pair, y: Pair, weight: str = "") -> None:
        weight = weight or f"{name}.weight"
        (self.x, self.d_x), (self.y, self.d_y) = x, y
        self.weight, self.d_weight = weights[weight], gradients[weight]
        self.weight_t, self.d_y_t = self.weight.transpose(1, 2), self.d_y.transpose(1, 2)
        bias = weights.get(f"{name}.bias")
        self.bias = None if bias is None else bias.unsqueeze(1)
        self.d_bias = gradients.get(f"{name}.bias")

    def forward(self) -> None:
        if self.bias is None:
            torch.bmm(self.x, self.weight_t, out=self.y)
        else:
            torch.baddbmm(self.bias, self.x, self.weight_t, out=self.y)

    def backward(self) -> None:
        self.backward_to_parameters()
        torch.bmm(self.d_y, self.weight, out=self.d_x)

    def backward_to_parameters(self) -> None:
        torch.bmm(self.d_y_t, self.x, out=self.d_weight)
        if self.d_bias is not None:
            torch.sum(self.d_y, 1, out=self.d_bias)


class LayerNorm:
    """Layer norm: x (M, N, D) to y (M, N, D), one call per model."""

    def __init__(self, name: str, eps: float, weights: Named, gradients: Named, x: Pair, y: Pair) -> None:
        self.shape, self.eps = [x[0].size(-1)], eps
        scale, d_scale = weights[f"{name}.weight"], gradients[f"{name}.weight"]
        shift = weights.get(f"{name}.bias")
        self.wanted = [True, True, shift is not None]
        M = len(scale)
        self.slots = [
            (*each, None if shift is None else shift[m], None if shift is None else gradients[f"{name}.bias"][m])
            for m, each in enumerate(zip(*x, *y, scale, d_scale, strict=True))
        ]
        self.statistics: list[Pair] = [(scale, scale)] * M  # mean and 1 / standard deviation of each row

    def forward(self) -> None:
        for m, (x, _, y, _, scale, _, shift, _) in enumerate(self.slots):
            found, *statistics = torch.native_layer_norm(x, self.shape, scale, shift, self.eps)
            y.copy_(found)
            self.statistics[m] = (statistics[0], statistics[1])

    def backward(self) -> None:
        back = torch.ops.aten.native_layer_norm_backward
        for (x, d_x, _, d_y, scale, d_scale, shift, d_shift), statistics in zip(
            self.slots, self.statistics, strict=True
        ):
            found = back(d_y, x, self.shape, *statistics, scale, shift, self.wanted)
            for target, value in zip((d_x, d_scale, d_shift), found, strict=True):
                if target is not None:
                    target.copy_(value)


class RMSNorm:
    """RMS norm: x (M, N, D) to y (M, N, D)."""

    def __init__(self, name: str, eps: float, weights: Named, gradients: Named, take: Take, x: Pair, y: Pair) -> None:
        (self.x, self.d_x), (self.y, self.d_y), self.eps = x, y, eps
        self.scale, self.d_scale = weights[f"{name}.weight"].unsqueeze(1), gradients[f"{name}.weight"]
        rows, dtype = self.x.shape[:-1], self.x.dtype
        self.normed = take(f"normed.{name}", self.x.shape, dtype)
        self.product = take("norm product", self.x.shape, dtype)
        self.rate = take(f"rate.{name}", (*rows, 1), dtype)  # 1 / root mean square of each row
        self.mean = take("norm mean", (*rows, 1), dtype)

    def forward(self) -> None:
        torch.mul(self.x, self.x, out=self.product)
        torch.mean(self.product, -1, keepdim=True, out=self.rate)
        self.rate.add_(self.eps).rsqrt_()
        torch.mul(self.x, self.rate, out=self.normed)
        torch.mul(self.normed, self.scale, out=self.y)

    def backward(self) -> None:
        torch.mul(self.d_y, self.normed, out=self.product)
        torch.sum(self.product, 1, out=self.d_scale)
        self.product *= self.scale
        torch.mean(self.product, -1, keepdim=True, out=self.mean)
        self.normed *= self.mean
        torch.mul(self.d_y, self.scale, out=self.d_x)
        self.d_x.sub_(self.normed).mul_(self.rate)


class Activation:
    """GELU or ReLU of whole padded buffers."""

    def __init__(self, relu: bool, x: Pair, y: Pair) -> None:
        (self.x, self.d_x), (self.y, self.d_y), self.relu = x, y, relu

    def forward(self) -> None:
        activate = torch.ops.aten.relu.out if self.relu else torch.ops.aten.gelu.out
        activate(self.x, out=self.y)

    def backward(self) -> None:
        if self.relu:
            torch.ops.aten.threshold_backward.grad_input(self.d_y, self.x, 0, grad_input=self.d_x)
        else:
            torch.ops.aten.gelu_backward.grad_input(self.d_y, self.x, grad_input=self.d_x)


class SwiGLU:
    """silu(gate(x)) * up(x), the products over whole padded buffers; `gate`, `up` and y are of one width."""

    def __init__(self, up: Linear, gate: Linear, h: Pair, g: Pair, y: Pair, silu: Pair) -> None:
        self.up, self.gate, (self.silu, self.d_silu) = up, gate, silu
        (self.h, self.d_h), (self.g, self.d_g), (self.y, self.d_y) = h, g, y

    def forward(self) -> None:
        self.up.forward()
        self.gate.forward()
        torch.ops.aten.silu.out(self.g, out=self.silu)
        torch.mul(self.silu, self.h, out=self.y)

    def backward(self) -> None:
        torch.mul(self.d_y, self.h, out=self.d_silu)
        torch.mul(self.d_y, self.silu, out=self.d_h)
        torch.ops.aten.silu_backward.grad_input(self.d_silu, self.g, grad_input=self.d_g)
        # Both read x, whose gradient takes its place.
        self.up.backward_to_parameters()
        self.gate.backward_to_parameters()
        torch.bmm(self.up.d_y, self.up.weight, out=self.up.d_x)
        self.gate.d_x.baddbmm_(self.gate.d_y, self.gate.weight)


class Kept:
    """What dropout keeps of tensors (M, n): 0 or 1/(1-p), drawn by each model's own generator."""

    def __init__(
        self, dropout: layers.Dropout, slots: slice, name: str, shape: tuple[int, int], dtype: torch.dtype, take: Take
    ) -> None:
        self.p, self.generators = dropout.p, (dropout.generators or [])[slots]
        self.factors, self.draws = take(f"kept.{name}", shape, dtype), take("draws", shape, torch.float32)

    def draw(self) -> None:
        """Draw as `layers.Dropout` does."""
        for draws, generator in zip(self.draws, self.generators, strict=True):
            draws.uniform_(generator=generator)
        torch.ge(self.draws, self.p, out=self.factors)
        self.factors /= 1 - self.p


class Dropout:
    """Dropout of y (M, N, D) in place; `d_out` is the gradient of what is left."""

    def __init__(self, kept: Kept, y: Pair, d_out: Tensor) -> None:
        self.kept, (self.y, self.d_y), self.d_out = kept, y, d_out
        self.factors = kept.factors.view(self.y.shape)

    def forward(self) -> None:
        self.kept.draw()
        self.y *= self.factors

    def backward(self) -> None:
        torch.mul(self.d_out, self.factors, out=self.d_y)


class ByAutograd:
    """Any function of x and parameters, such as custom attention, with a small autograd graph for its backward pass."""

    def __init__(self, function: Function, x: Pair, y: Pair, parameters: Mapping[str, Pair]) -> None:
        self.function, (self.x, self.d_x), (self.y, self.d_y) = function, x, y
        self.parameters = {name: values for name, (values, _) in parameters.items()}
        self.targets = [self.d_x, *(gradient for _, gradient in parameters.values())]
        self.leaves: list[Tensor] = []
        self.output = self.y

    def forward(self) -> None:
        x = self.x.detach().requires_grad_()
        own = {name: values.detach().requires_grad_() for name, values in self.parameters.items()}
        self.leaves = [x, *own.values()]
        with torch.enable_grad():
            self.output = self.function(x, own)
        self.y.copy_(self.output.detach())

    def backward(self) -> None:
        found = vector_jacobian(self.output, self.d_y, self.leaves)
        for target, gradient in zip(self.targets, found, strict=True):
            target.copy_(gradient)
        self.leaves, self.output = [], self.y  # free the graph
