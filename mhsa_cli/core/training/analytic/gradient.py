"""The analytic gradient of a stack of models: which models have one, and the order of their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhsa_cli.core.model import layers
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.positions import LearnedPositions, Positions, SinusoidalPositions
from mhsa_cli.core.model.transformer import Block, TransformerLM
from mhsa_cli.core.training.analytic import parts
from mhsa_cli.core.training.analytic.parts import Named, Pair, Take

TOKENS = 3072  # of all models computed together: their tensors stay in a core's cache


def has_analytic_gradient(model: TransformerLM, dtype: str) -> bool:
    """Whether all parts of a model have an analytic gradient."""
    blocks, attention = model.blocks, [mixer for mixer in model.mixers if isinstance(mixer, MultiHeadSelfAttention)]
    norms = [model.final_norm] + [norm for block in blocks for norm in (block.attn_norm, block.mlp_norm) if norm]
    plain = (
        not model.source
        and len(attention) == len(model.blocks)
        and all(
            attn.kind == "softmax" and attn.window is None and attn.n_kv_heads == attn.n_heads for attn in attention
        )
    )
    known = all(isinstance(norm, nn.Identity | layers.LayerNorm) for norm in norms)
    known &= all(block.mlp is None or block.mlp.gate is None for block in blocks)
    known &= type(model.positions) in (Positions, SinusoidalPositions, LearnedPositions)
    dropping = any(m.p > 0 for m in model.modules() if isinstance(m, layers.Dropout))
    tied = model.lm_head.weight is model.tok_emb.weight
    return plain and known and not (dropping or tied or dtype == "bfloat16")


class AnalyticGradient:
    """Computes loss and gradients of a stack of models into the given gradient tensors.

    `gradients` maps parameter names to tensors of the parameters' shapes (M, ...). The weights' storage must not
    change.
    """

    def __init__(self, model: TransformerLM, gradients: dict[str, Tensor]) -> None:
        self.model, self.gradients = model, gradients
        self.weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self._space: dict[tuple[str, torch.Size], Tensor] = {}
        self._layouts: dict[torch.Size, list[tuple[slice, _Layout]]] = {}

    @torch.no_grad()
    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the gradients for ids and targets (M, B, T); returns each model's loss (nats) and accuracy, (M,)."""
        layouts = self._layouts.get(inputs.shape)
        if layouts is None:
            layouts = self._layouts[inputs.shape] = self._lay_out(*inputs.shape)
        figures = [layout.run(inputs[slots], targets[slots]) for slots, layout in layouts]
        if len(figures) == 1:
            return figures[0]
        losses, accuracies = zip(*figures, strict=True)
        return torch.cat(losses), torch.cat(accuracies)

    def _lay_out(self, M: int, B: int, T: int) -> list[tuple[slice, _Layout]]:
        """Allocate a step's tensors for ids (M, B, T), in groups of models that share the same buffers."""
        mlp = [weight.size(-2) for name, weight in self.weights.items() if name.endswith("mlp.up.weight")]
        # One model at a time where a product has a vector on one side: see `layers.one_by_one`.
        size = 1 if 1 in (T, self.model.attention[0].d_head, *mlp) else max(1, TOKENS // (B * T))
        found = []
        for first in range(0, M, size):
            slots = slice(first, min(first + size, M))
            weights, gradients = ({n: t[slots] for n, t in part.items()} for part in (self.weights, self.gradients))
            found.append((slots, _Layout(self.model, weights, gradients, self._take, B, T)))
        return found

    def _take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        key = (name, torch.Size(shape))
        if key not in self._space:
            self._space[key] = torch.zeros(shape, dtype=dtype, device=self.model.pos.device)
        return self._space[key]


class _Layout:
    """The parts of a group of models, each with its tensors."""

    def __init__(self, model: TransformerLM, weights: Named, gradients: Named, take: Take, B: int, T: int) -> None:
        self.weights, self.gradients, self.take = weights, gradients, take
        table = weights["tok_emb.weight"]
        (V, D), self.dtype, self.rows = table.shape[1:], table.dtype, (len(table), B * T)
        self.forwards: list[Callable[[], object]] = []
        self.backwards: list[Callable[[], object]] = []
        x = self._pair("x", D)
        self.embedding = parts.Embedding(model.positions, weights, gradients, take, x, T)
        self._append(self.embedding)
        for layer, block in enumerate(model.blocks):
            x = self._block(layer, block, x, block.inner.visible[:T, :T])
        x = self._norm(model.final_norm, "final_norm", x)
        logits = (self._pair("logits", V)[0], self._pair("d_logits", V)[0])
        self._linear("lm_head", x, logits)
        self.logits, self.loss = logits[0], parts.CrossEntropy(logits[1], take)

    def run(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Run all parts forward and backward."""
        torch.add(inputs, self.embedding.first, out=self.embedding.ids)
        for forward in self.forwards:
            forward()
        figures = self.loss(self.logits, targets)
        for backward in reversed(self.backwards):
            backward()
        return figures

    def _block(self, layer: int, block: Block, x: Pair, allowed: Tensor) -> Pair:
        """Append the parts of one block on x, in the order of `Block.forward`; returns its output."""
        name = f"blocks.{layer}"

        def attention(x: Pair, y: Pair) -> None:
            T, H, width = len(allowed), block.inner.n_heads, block.inner.widths[0]
            qkv, context = self._pair(f"qkv.{layer}", 3 * width), self._pair(f"context.{layer}", width)
            self._linear(f"{name}.attn.qkv_proj", x, qkv)
            short = parts.Attention(layer, qkv, context, allowed, H, self.take) if T <= parts.SHORT else None
            self._append(short or parts.FusedAttention(qkv, context, T, H, block.inner.causal))
            self._linear(f"{name}.attn.out_proj", context, y)

        def mlp(x: Pair, y: Pair) -> None:
            width = self.weights[f"{name}.mlp.up.weight"].size(-2)
            self._linear(f"{name}.mlp.up", x, self._pair(f"hidden.{layer}", width))
            (h, d_h), (a, d_a) = self._whole(f"hidden.{layer}", width), self._whole(f"active.{layer}", width)
            aten = torch.ops.aten
            if block.mlp is not None and block.mlp.activation is F.relu:
                self.forwards.append(partial(aten.relu.out, h, out=a))
                self.backwards.append(partial(aten.threshold_backward.grad_input, d_a, h, 0, grad_input=d_h))
            else:
                self.forwards.append(partial(aten.gelu.out, h, out=a))
                self.backwards.append(partial(aten.gelu_backward.grad_input, d_a, h, grad_input=d_h))
            self._linear(f"{name}.mlp.down", self._pair(f"active.{layer}", width), y)

        x = self._sublayer(attention, block.attn_norm, f"{name}.attn_norm", x, block.residual)
        if block.mlp is None or block.mlp_norm is None:
            return x
        return self._sublayer(mlp, block.mlp_norm, f"{name}.mlp_norm", x, block.residual)

    def _sublayer(
        self, inner: Callable[[Pair, Pair], None], norm: nn.Module, name: str, x: Pair, residual: bool
    ) -> Pair:
        """Append a norm, the parts of `inner` and the residual connection; returns the output."""
        y = out = self._pair(f"y.{name}", x[0].size(-1))
        if residual:  # y and out have the same gradient
            out = self._pair(f"out.{name}", x[0].size(-1))
            self.backwards.append(partial(x[1].add_, out[1]))
        inner(self._norm(norm, name, x), (y[0], out[1]))
        if residual:
            self.forwards.append(partial(torch.add, x[0], y[0], out=out[0]))
        return out

    def _append(self, part: parts.Part) -> None:
        self.forwards.append(part.forward)
        self.backwards.append(part.backward)

    def _linear(self, name: str, x: Pair, y: Pair) -> None:
        self._append(parts.Linear(name, self.weights, self.gradients, x, y))

    def _norm(self, norm: nn.Module, name: str, x: Pair) -> Pair:
        if isinstance(norm, nn.Identity):
            return x
        y = self._pair(name, x[0].size(-1))
        self._append(parts.LayerNorm(name, self.weights, self.gradients, x, y))
        return y

    def _pair(self, name: str, width: int) -> Pair:
        """Return the values `name` (M, B*T, width) and their gradient."""
        values, gradient = (t[: self.rows[0] * self.rows[1] * width] for t in self._whole(name, width))
        return values.view(*self.rows, width), gradient.view(*self.rows, width)

    def _whole(self, name: str, width: int) -> Pair:
        """Return the padded buffer of such a pair: a gradient overwrites values that are not needed afterwards."""
        buffer = self.take(name, (layers.padded(self.rows[0] * self.rows[1] * width),), self.dtype)
        return buffer, buffer
