"""The lesson's model, one attention block and nothing else, with its gradient written out by hand.

At toy sizes most of a training step is bookkeeping: a few hundred small calls of autograd, of views and of allocations
for some fifty that compute. Here are the fifty; every tensor and every view of it is made once. Tests hold all
gradients against autograd on the ordinary model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mhsa_cli.core.answers import Answers, Take
from mhsa_cli.core.layers import Dropout, padded
from mhsa_cli.core.model import Block, TransformerLM
from mhsa_cli.core.positions import LearnedPositions, Positions, SinusoidalPositions

LONGEST = 64  # tokens; beyond it the (T, T) weights, kept for the backward pass, cost more than they save
TOKENS = 3072  # of all models that are computed together: what they need stays in a core's cache


def is_bare(model: TransformerLM, dtype: str) -> bool:
    """Tell whether a model is the one that is written out here: one block, softmax, no other part."""
    block = model.blocks[0]
    if len(model.blocks) > 1 or not isinstance(block, Block):
        return False
    attn = block.attn
    plain = not block.residual and block.mlp is None and attn.kind == "softmax"
    full = attn.n_kv_heads == attn.n_heads and attn.window is None
    unnormed = isinstance(block.attn_norm, nn.Identity) and isinstance(model.final_norm, nn.Identity)
    positions = type(model.positions) in (Positions, SinusoidalPositions, LearnedPositions)
    dropping = any(m.p > 0 for m in model.modules() if isinstance(m, Dropout))
    tied = model.lm_head.weight is model.tok_emb.weight
    biased, short = attn.qkv_proj.bias is not None, model.max_seq_len <= LONGEST
    return (
        plain and full and unnormed and positions and biased and short and not (dropping or tied or dtype == "bfloat16")
    )


class BareGradient:
    """Compute loss and gradients of a stack of bare models, straight into the given gradient tensors.

    `gradients` maps parameter names to tensors of the parameters' shapes (M, ...). Weights are read where they lie at
    construction, which must not change.
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
        """Make every tensor of a step for ids (M, B, T), a few models at a time: all of these use the same memory."""
        size = max(1, TOKENS // (B * T))
        found = []
        for first in range(0, M, size):
            slots = slice(first, min(first + size, M))
            weights, gradients = ({n: t[slots] for n, t in part.items()} for part in (self.weights, self.gradients))
            found.append((slots, _Layout(self.model, weights, gradients, self._take, B, T)))
        return found

    def _take(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Give the buffer of this name and shape, zeros at first."""
        key = (name, torch.Size(shape))
        if key not in self._space:
            self._space[key] = torch.zeros(shape, dtype=dtype, device=self.model.pos.device)
        return self._space[key]


class _Layout:
    """The parts of a few models' step, each with its tensors: what one part writes the next one reads."""

    def __init__(
        self,
        model: TransformerLM,
        weights: dict[str, Tensor],
        gradients: dict[str, Tensor],
        take: Take,
        B: int,
        T: int,
    ) -> None:
        attn = model.attention[0]
        (M, V, D), dtype = weights["tok_emb.weight"].shape, weights["tok_emb.weight"].dtype

        def pair(name: str, width: int) -> tuple[Tensor, Tensor]:
            shape = (M, B * T, width)
            return take(name, shape, dtype), take(f"d_{name}", shape, dtype)  # values and their gradient

        def linear(name: str, x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> _Linear:
            parameters = f"{name}.weight", f"{name}.bias"
            return _Linear([weights[p] for p in parameters], [gradients[p] for p in parameters], *x, *y)

        x, qkv, context, y = pair("x", D), pair("qkv", 3 * D), pair("context", D), pair("y", D)
        logits = pair("logits", V)
        self.embedding = _Embedding(model.positions, weights, gradients, take, *x, T)
        self.qkv_proj = linear("blocks.0.attn.qkv_proj", x, qkv)
        self.attention = _Attention(*qkv, *context, attn.causal_mask[:T, :T], attn.n_heads, take)
        self.out_proj = linear("blocks.0.attn.out_proj", context, y)
        self.lm_head = linear("lm_head", y, logits)
        self.logits, self.answers = logits[0], Answers(logits[1], take)

    def run(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Go through all parts and back."""
        self.embedding.forward(inputs)
        self.qkv_proj.forward()
        self.attention.forward()
        self.out_proj.forward()
        self.lm_head.forward()
        figures = self.answers(self.logits, targets)
        self.lm_head.backward()
        self.out_proj.backward()
        self.attention.backward()
        self.qkv_proj.backward()
        self.embedding.backward()
        return figures


class _Embedding:
    """Token vectors plus position vectors: ids (M, B, T) to x (M, B*T, D)."""

    def __init__(
        self,
        positions: Positions,
        weights: dict[str, Tensor],
        gradients: dict[str, Tensor],
        take: Take,
        x: Tensor,
        d_x: Tensor,
        T: int,
    ) -> None:
        table, gradient = weights["tok_emb.weight"], gradients["tok_emb.weight"]
        M, V, D = table.shape
        rows = (M, x.size(1) // T, T, D)
        self.table, self.d_table = table.view(M * V, D), gradient.view(M * V, D)
        self.x, self.d_x = x.view(-1, D), d_x.view(-1, D)
        self.x_rows, self.d_x_rows = x.view(rows), d_x.view(rows)
        self.first = torch.arange(0, M * V, V, device=x.device).view(M, 1, 1)  # where each model's table begins
        self.ids = take("ids", rows[:3], torch.int64)
        self.flat_ids = self.ids.view(-1)
        self.shift = positions.table[:T].to(x.dtype) if isinstance(positions, SinusoidalPositions) else None
        self.d_shift = None
        if isinstance(positions, LearnedPositions):
            name = "positions.pos_emb.weight"
            self.shift = weights[name][:, :T].unsqueeze(1)
            self.d_shift = gradients[name][:, :T]
            gradients[name].zero_()  # rows beyond T stay so

    def forward(self, ids: Tensor) -> None:
        torch.add(ids, self.first, out=self.ids)
        torch.index_select(self.table, 0, self.flat_ids, out=self.x)
        if self.shift is not None:
            self.x_rows += self.shift

    def backward(self) -> None:
        self.d_table.zero_().index_add_(0, self.flat_ids, self.d_x)
        if self.d_shift is not None:
            torch.sum(self.d_x_rows, 1, out=self.d_shift)


class _Linear:
    """A linear map with bias: x (M, N, in) to y (M, N, out)."""

    def __init__(
        self, parameters: list[Tensor], gradients: list[Tensor], x: Tensor, d_x: Tensor, y: Tensor, d_y: Tensor
    ) -> None:
        self.weight, bias = parameters
        self.d_weight, self.d_bias = gradients
        self.weight_t, self.bias = self.weight.transpose(1, 2), bias.unsqueeze(1)
        self.x, self.d_x, self.y, self.d_y, self.d_y_t = x, d_x, y, d_y, d_y.transpose(1, 2)

    def forward(self) -> None:
        torch.baddbmm(self.bias, self.x, self.weight_t, out=self.y)

    def backward(self) -> None:
        torch.bmm(self.d_y_t, self.x, out=self.d_weight)
        torch.sum(self.d_y, 1, out=self.d_bias)
        torch.bmm(self.d_y, self.weight, out=self.d_x)


class _Attention:
    """Softmax attention between the projections: qkv (M, B*T, 3D) to context (M, B*T, D), H heads of width d."""

    def __init__(
        self,
        qkv: Tensor,
        d_qkv: Tensor,
        context: Tensor,
        d_context: Tensor,
        allowed: Tensor,
        n_heads: int,
        take: Take,
    ) -> None:
        T, D, dtype = len(allowed), context.size(-1), qkv.dtype
        R, H, d = context.numel() // (T * D), n_heads, D // n_heads  # R rows of all models
        self.scale = 1 / math.sqrt(d)  # not sqrt(d_model)
        self.mask = torch.zeros_like(allowed, dtype=qkv.dtype).masked_fill_(~allowed, -math.inf)
        # In memory the heads of a token lie side by side, but products want every head's tokens together.
        by_token, by_head = (R, T, 3, H, d), (3, R, H, T, d)
        self.qkv_by_token = qkv.view(by_token).permute(2, 0, 3, 1, 4)
        self.d_qkv_by_token = d_qkv.view(by_token).permute(2, 0, 3, 1, 4)
        self.context_by_token = context.view(R, T, H, d).transpose(1, 2)
        self.d_context_by_token = d_context.view(R, T, H, d).transpose(1, 2)
        self.heads, self.d_heads = take("heads", by_head, dtype), take("d_heads", by_head, dtype)
        self.q, self.k, self.v = self.heads.view(3, R * H, T, d).unbind(0)
        self.d_q, self.d_k, self.d_v = self.d_heads.view(3, R * H, T, d).unbind(0)
        self.k_t, self.v_t = self.k.transpose(1, 2), self.v.transpose(1, 2)
        self.mixed, self.d_mixed, self.product = (take(n, self.q.shape, dtype) for n in ("mixed", "d_mixed", "product"))
        self.mixed_by_head, self.d_mixed_by_head = self.mixed.view(R, H, T, d), self.d_mixed.view(R, H, T, d)
        numbers = R * H * T * T
        self.padded = take("weights", (padded(numbers),), dtype)
        self.weights, self.d_weights = self.padded[:numbers].view(R * H, T, T), take("d_weights", (R * H, T, T), dtype)
        self.weights_t, self.d_weights_t = self.weights.transpose(1, 2), self.d_weights.transpose(1, 2)
        self.each_row = take("each_row", (R * H, T, 1), dtype)

    def forward(self) -> None:
        weights, each_row = self.weights, self.each_row
        self.heads.copy_(self.qkv_by_token)
        # Scores in units of ln 2: exp2 takes the mask's -inf in its stride, exp is ten times slower on it. The softmax
        # in its parts: torch's own is slow on rows this short.
        torch.baddbmm(self.mask, self.q, self.k_t, alpha=self.scale / math.log(2), out=weights)
        torch.amax(weights, -1, keepdim=True, out=each_row)
        weights -= each_row
        self.padded.exp2_()
        torch.sum(weights, -1, keepdim=True, out=each_row)
        weights /= each_row
        torch.bmm(weights, self.v, out=self.mixed)
        self.context_by_token.copy_(self.mixed_by_head)

    def backward(self) -> None:
        d_weights = self.d_weights
        self.d_mixed_by_head.copy_(self.d_context_by_token)
        torch.bmm(self.weights_t, self.d_mixed, out=self.d_v)
        torch.bmm(self.d_mixed, self.v_t, out=d_weights)
        # Through the softmax, d_scores = w (d_w - sum_k d_w w), where the sum is also d_mixed . mixed.
        torch.mul(self.d_mixed, self.mixed, out=self.product)
        torch.sum(self.product, -1, keepdim=True, out=self.each_row)
        d_scores = d_weights.sub_(self.each_row).mul_(self.weights)
        torch.baddbmm(self.d_q, d_scores, self.k, beta=0, alpha=self.scale, out=self.d_q)
        torch.baddbmm(self.d_k, self.d_weights_t, self.q, beta=0, alpha=self.scale, out=self.d_k)
        self.d_qkv_by_token.copy_(self.d_heads)
