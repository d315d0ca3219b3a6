"""The analytic gradient of a stack of models: which models have one, and the order of their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhsa_cli.core.model import layers
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.custom import CustomLayer
from mhsa_cli.core.model.positions import (
    AlibiPositions,
    LearnedPositions,
    Positions,
    RopePositions,
    SinusoidalPositions,
)
from mhsa_cli.core.model.transformer import MLP, Block, TransformerLM
from mhsa_cli.core.training.analytic import parts
from mhsa_cli.core.training.analytic.attention import Attention
from mhsa_cli.core.training.analytic.loss import CrossEntropy
from mhsa_cli.core.training.analytic.parts import Linear, Named, Pair, Take

TOKENS = 3072  # of all models computed together: their tensors stay in a core's cache
POSITIONS = (Positions, LearnedPositions, SinusoidalPositions, RopePositions, AlibiPositions)
NORMS = (nn.Identity, layers.LayerNorm, layers.RMSNorm)
ACTIVATIONS = (F.gelu, F.relu)
SHORT = 24  # tokens; on longer rows the fused kernel, which stores no weights, is faster


def has_analytic_gradient(model: TransformerLM, dtype: str) -> bool:
    """Whether all parts of a model have an analytic gradient: of those here, all but bfloat16 and encoder-decoders."""
    norms = [model.final_norm, *(norm for block in model.blocks for norm in (block.attn_norm, block.mlp_norm) if norm)]
    return (
        not model.source
        and dtype != "bfloat16"
        and type(model.positions) in POSITIONS
        and all(type(norm) in NORMS for norm in norms)
        and all(block.mlp is None or block.mlp.activation in ACTIVATIONS for block in model.blocks)
    )


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
        widths = [attn.d_head for attn in self.model.mixers if isinstance(attn, MultiHeadSelfAttention)]
        # One model at a time where a product has a vector on one side: see `layers.one_by_one`.
        size = 1 if 1 in (T, *widths, *mlp) else max(1, TOKENS // (B * T))
        found = []
        for first in range(0, M, size):
            slots = slice(first, min(first + size, M))
            weights, gradients = ({n: t[slots] for n, t in part.items()} for part in (self.weights, self.gradients))
            found.append((slots, _Layout(self.model, slots, weights, gradients, self._take, B, T)))
        return found

    def _take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        key = (name, torch.Size(shape))
        if key not in self._space:
            self._space[key] = torch.zeros(shape, dtype=dtype, device=self.model.pos.device)
        return self._space[key]


class _Layout:
    """The parts of a group of models, those in `slots` of the stack, each with its tensors."""

    def __init__(
        self, model: TransformerLM, slots: slice, weights: Named, gradients: Named, take: Take, B: int, T: int
    ) -> None:
        self.weights, self.gradients, self.take, self.slots = weights, gradients, take, slots
        table = weights["tok_emb.weight"]
        (V, D), self.dtype, self.rows, self.T = table.shape[1:], table.dtype, (len(table), B * T), T
        self.forwards: list[Callable[[], object]] = []
        self.backwards: list[Callable[[], object]] = []
        x, tied = self._pair("x", D), "lm_head.weight" not in weights
        self.embedding = parts.Embedding(model.positions, weights, gradients, take, x, T, tied)
        self._append(self.embedding)
        self._dropout(model.embed_dropout, "embedding", x, x[1])
        for layer, block in enumerate(model.blocks):
            x = self._block(layer, block, x)
        x = self._norm(model.final_norm, "final_norm", x)
        logits = (self._pair("logits", V)[0], self._pair("d_logits", V)[0])
        head = Linear("lm_head", weights, gradients, x, logits, "tok_emb.weight" if tied else "lm_head.weight")
        self._append(head)
        self.logits, self.loss = logits[0], CrossEntropy(logits[1], take)

    def run(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Run all parts forward and backward."""
        torch.add(inputs, self.embedding.first, out=self.embedding.ids)
        for forward in self.forwards:
            forward()
        figures = self.loss(self.logits, targets)
        for backward in reversed(self.backwards):
            backward()
        return figures

    def _block(self, layer: int, block: Block, x: Pair) -> Pair:
        """Append the parts of one block on x, in the order of `Block.forward`; returns its output."""
        name = f"blocks.{layer}"
        attend: Callable[[Pair, Pair], None]
        if isinstance(block.attn, CustomLayer):
            attend, dropout = partial(self._custom, layer, block.attn), None
        else:
            attend, dropout = partial(self._attention, layer, block.attn), block.attn.out_dropout
        x = self._sublayer(attend, block.attn_norm, dropout, f"{name}.attn_norm", x, block.residual)
        if block.mlp is None or block.mlp_norm is None:
            return x
        mlp = partial(self._mlp, layer, block.mlp)
        return self._sublayer(mlp, block.mlp_norm, block.mlp.dropout, f"{name}.mlp_norm", x, block.residual)

    def _sublayer(
        self,
        inner: Callable[[Pair, Pair], None],
        norm: nn.Module,
        dropout: layers.Dropout | None,
        name: str,
        x: Pair,
        residual: bool,
    ) -> Pair:
        """Append a norm, the parts of `inner`, dropout and the residual connection; returns the output."""
        y = out = self._pair(f"y.{name}", x[0].size(-1))
        drops = dropout is not None and dropout.p > 0
        if residual:
            out = self._pair(f"out.{name}", x[0].size(-1))
            self.backwards.append(partial(x[1].add_, out[1]))
            if not drops:  # y and out have the same gradient
                y = y[0], out[1]
        inner(self._norm(norm, name, x), y)
        if dropout is not None:
            self._dropout(dropout, name, y, out[1])
        if residual:
            self.forwards.append(partial(torch.add, x[0], y[0], out=out[0]))
        return out

    def _attention(self, layer: int, attn: MultiHeadSelfAttention, x: Pair, y: Pair) -> None:
        name, T = f"blocks.{layer}.attn", self.T
        qkv, context = self._pair(f"qkv.{layer}", sum(attn.widths)), self._pair(f"context.{layer}", attn.widths[0])
        self._linear(f"{name}.qkv_proj", x, qkv)
        if T <= SHORT:
            kept = self._kept(attn.weights_dropout, f"{name}.weights", self.rows[1] * attn.n_heads * T)
            self._append(Attention(layer, attn, qkv, context, T, kept, self.take))
        else:
            pos = torch.arange(T, device=qkv[0].device)
            function = partial(self._drawing, attn.weights_dropout, lambda x, _: attn.attend(x, pos))
            self._append(parts.ByAutograd(function, self._by_row(qkv), self._by_row(context), {}))
        self._linear(f"{name}.out_proj", context, y)

    def _custom(self, layer: int, attn: CustomLayer, x: Pair, y: Pair) -> None:
        names = {name: f"blocks.{layer}.attn.{name}" for name, _ in attn.named_parameters()}
        own = {name: (self.weights[full], self.gradients[full]) for name, full in names.items()}
        function = partial(self._drawing, attn, lambda x, own: torch.func.functional_call(attn, own, (x,)))
        self._append(parts.ByAutograd(function, self._by_row(x), self._by_row(y), own))

    def _drawing(
        self, draws: CustomLayer | layers.Dropout, function: parts.Function, x: Tensor, own: dict[str, Tensor]
    ) -> Tensor:
        """Call a function of x and parameters that draws from the generators of these models alone."""
        whole = draws.generators
        draws.generators = None if whole is None else whole[self.slots]
        try:
            return function(x, own)
        finally:
            draws.generators = whole

    def _mlp(self, layer: int, mlp: MLP, x: Pair, y: Pair) -> None:
        name = f"blocks.{layer}.mlp"
        width = self.weights[f"{name}.up.weight"].size(-2)
        up = Linear(f"{name}.up", self.weights, self.gradients, x, self._pair(f"hidden.{layer}", width))
        h, a = self._whole(f"hidden.{layer}", width), self._whole(f"active.{layer}", width)
        if mlp.gate is None:
            self._append(up)
            self._append(parts.Activation(mlp.activation is F.relu, h, a))
        else:
            gate = Linear(f"{name}.gate", self.weights, self.gradients, x, self._pair(f"gate.{layer}", width))
            silu = self._whole(f"silu.{layer}", width)[0], self._whole("d_silu", width)[0]
            self._append(parts.SwiGLU(up, gate, h, self._whole(f"gate.{layer}", width), a, silu))
        self._linear(f"{name}.down", self._pair(f"active.{layer}", width), y)

    def _dropout(self, dropout: layers.Dropout, name: str, y: Pair, d_out: Tensor) -> None:
        """Append dropout of y in place, unless nothing is dropped; `d_out` is the gradient of what is left."""
        kept = self._kept(dropout, name, y[0].shape[1:].numel())
        if kept is not None:
            self._append(parts.Dropout(kept, y, d_out))

    def _kept(self, dropout: layers.Dropout, name: str, size: int) -> parts.Kept | None:
        """Return the factors of dropout for `size` numbers of each model; None if nothing is dropped."""
        if dropout.p == 0:
            return None
        return parts.Kept(dropout, self.slots, name, (self.rows[0], size), self.dtype, self.take)

    def _append(self, part: parts.Part) -> None:
        self.forwards.append(part.forward)
        self.backwards.append(part.backward)

    def _linear(self, name: str, x: Pair, y: Pair) -> None:
        self._append(Linear(name, self.weights, self.gradients, x, y))

    def _norm(self, norm: nn.Module, name: str, x: Pair) -> Pair:
        if isinstance(norm, nn.Identity):
            return x
        y = self._pair(name, x[0].size(-1))
        if isinstance(norm, layers.RMSNorm):
            self._append(parts.RMSNorm(name, norm.eps, self.weights, self.gradients, self.take, x, y))
        elif isinstance(norm, layers.LayerNorm):
            self._append(parts.LayerNorm(name, norm.eps, self.weights, self.gradients, x, y))
        return y

    def _by_row(self, pair: Pair) -> Pair:
        """View values and gradient (M, B*T, width) as (M, B, T, width)."""
        return pair[0].unflatten(1, (-1, self.T)), pair[1].unflatten(1, (-1, self.T))

    def _pair(self, name: str, width: int) -> Pair:
        """Return the values `name` (M, B*T, width) and their gradient."""
        values, gradient = (t[: self.rows[0] * self.rows[1] * width] for t in self._whole(name, width))
        return values.view(*self.rows, width), gradient.view(*self.rows, width)

    def _whole(self, name: str, width: int) -> Pair:
        """Return the padded buffer of such a pair: a gradient overwrites values that are not needed afterwards."""
        buffer = self.take(name, (layers.padded(self.rows[0] * self.rows[1] * width),), self.dtype)
        return buffer, buffer
