"""The parts of a model, each with its way forward and back over tensors that were made before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from mhsa_cli.core.model.positions import LearnedPositions, Positions, SinusoidalPositions

Take = Callable[[str, Sequence[int], torch.dtype], Tensor]  # gives a buffer, by name, shape and dtype
Named = Mapping[str, Tensor]  # parameters of a few models, or their gradients, by name
Pair = tuple[Tensor, Tensor]  # values and d loss / d values


class Part(Protocol):
    """Reads what the part before it wrote; on the way back the other way round. Gradients of parameters are filled."""

    def forward(self) -> None:
        """Compute the part's values."""

    def backward(self) -> None:
        """Compute the gradients of its input and of its parameters."""


class Embedding:
    """Token vectors plus position vectors: ids (M, B, T) to x (M, B*T, D)."""

    def __init__(self, positions: Positions, weights: Named, gradients: Named, take: Take, x: Pair, T: int) -> None:
        table, gradient = weights["tok_emb.weight"], gradients["tok_emb.weight"]
        M, V, D = table.shape
        rows = (M, x[0].size(1) // T, T, D)
        self.table, self.d_table = table.view(M * V, D), gradient.view(M * V, D)
        self.x, self.d_x = (t.view(-1, D) for t in x)
        self.x_rows, self.d_x_rows = (t.view(rows) for t in x)
        self.first = torch.arange(0, M * V, V, device=table.device).view(M, 1, 1)  # where each model's table begins
        self.ids = take("ids", rows[:3], torch.int64)
        self.flat_ids = self.ids.view(-1)
        self.index_add_is_deterministic = not table.is_cuda  # there it adds in whichever order comes
        self.shift = positions.table[:T].to(table.dtype) if isinstance(positions, SinusoidalPositions) else None
        self.d_shift = None
        if isinstance(positions, LearnedPositions):
            name = "positions.pos_emb.weight"
            self.shift, self.d_shift = weights[name][:, :T].unsqueeze(1), gradients[name][:, :T]
            gradients[name].zero_()  # rows beyond T stay so

    def forward(self) -> None:
        torch.index_select(self.table, 0, self.flat_ids, out=self.x)
        if self.shift is not None:
            self.x_rows += self.shift

    def backward(self) -> None:
        if self.index_add_is_deterministic:
            self.d_table.zero_().index_add_(0, self.flat_ids, self.d_x)
        else:
            back = torch.ops.aten.embedding_dense_backward
            self.d_table.copy_(back(self.d_x, self.flat_ids, len(self.d_table), -1, False))
        if self.d_shift is not None:
            torch.sum(self.d_x_rows, 1, out=self.d_shift)


class Linear:
    """A linear map: x (M, N, in) to y (M, N, out)."""

    def __init__(self, name: str, weights: Named, gradients: Named, x: Pair, y: Pair) -> None:
        (self.x, self.d_x), (self.y, self.d_y) = x, y
        self.weight, self.d_weight = weights[f"{name}.weight"], gradients[f"{name}.weight"]
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
        torch.bmm(self.d_y_t, self.x, out=self.d_weight)
        if self.d_bias is not None:
            torch.sum(self.d_y, 1, out=self.d_bias)
        torch.bmm(self.d_y, self.weight, out=self.d_x)


class LayerNorm:
    """Layer norm with scale and shift: x (M, N, D) to y (M, N, D), model by model."""

    def __init__(self, name: str, weights: Named, gradients: Named, x: Pair, y: Pair) -> None:
        self.shape = [x[0].size(-1)]
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
            found, *statistics = torch.native_layer_norm(x, self.shape, scale, shift, 1e-5)
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


class Gelu:
    """The nonlinearity of the MLP, on whole buffers without remainder: x to y of one shape."""

    def __init__(self, x: Pair, y: Pair) -> None:
        (self.x, self.d_x), (self.y, self.d_y) = x, y

    def forward(self) -> None:
        torch.ops.aten.gelu.out(self.x, out=self.y)

    def backward(self) -> None:
        torch.ops.aten.gelu_backward.grad_input(self.d_y, self.x, grad_input=self.d_x)


class Skip:
    """The residual connection where it leaves: what came back around the layer joins what came back through it."""

    def __init__(self, d_x: Tensor, d_out: Tensor) -> None:
        self.d_x, self.d_out = d_x, d_out

    def forward(self) -> None:
        """Leave x as it is."""

    def backward(self) -> None:
        self.d_x += self.d_out


class Join:
    """The residual connection where it arrives: out = x + y. The gradient of y is that of `out`, the same tensor."""

    def __init__(self, x: Tensor, y: Tensor, out: Tensor) -> None:
        self.x, self.y, self.out = x, y, out

    def forward(self) -> None:
        torch.add(self.x, self.y, out=self.out)

    def backward(self) -> None:
        """Leave the gradient as it is."""
