"""The parts of a model, each with a forward and a backward pass over preallocated tensors.

A forward pass reads the input and writes the output; a backward pass fills the gradients of input and parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.model.layers import padded
from mhsa_cli.core.model.positions import LearnedPositions, Positions, SinusoidalPositions
from mhsa_cli.core.tasks.base import IGNORE
from mhsa_cli.core.training.backward import vector_jacobian

SHORT = 24  # tokens; on longer rows the fused kernel, which stores no weights, is faster
WEIGHTS = 2**16  # attention weights computed together: they stay in a core's cache

Take = Callable[[str, Sequence[int], torch.dtype], Tensor]  # returns a buffer by name, shape and dtype
Named = Mapping[str, Tensor]  # parameters of some models, or their gradients, by name
Pair = tuple[Tensor, Tensor]  # values and d loss / d values


class Embedding:
    """Token plus position embeddings: ids (M, B, T) to x (M, B*T, D)."""

    def __init__(self, positions: Positions, weights: Named, gradients: Named, take: Take, x: Pair, T: int) -> None:
        table, gradient = weights["tok_emb.weight"], gradients["tok_emb.weight"]
        M, V, D = table.shape
        rows = (M, x[0].size(1) // T, T, D)
        self.table, self.d_table = table.view(M * V, D), gradient.view(M * V, D)
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
        if self.index_add_is_deterministic:
            self.d_table.zero_().index_add_(0, self.flat_ids, self.d_x)
        else:
            back = torch.ops.aten.embedding_dense_backward
            self.d_table.copy_(back(self.d_x, self.flat_ids, len(self.d_table), -1, False))
        if self.d_positions is not None:
            torch.sum(self.d_x_rows, 1, out=self.d_positions)


class Linear:
    """A linear layer: x (M, N, in) to y (M, N, out)."""

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
    """Layer norm: x (M, N, D) to y (M, N, D), one call per model."""

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


class Attention:
    """Attention to `allowed` keys (T, T) with materialised weights: qkv (M, B*T, 3 H d) to context (M, B*T, H d)."""

    def __init__(self, layer: int, qkv: Pair, context: Pair, allowed: Tensor, n_heads: int, take: Take) -> None:
        T, width, dtype = len(allowed), context[0].size(-1), qkv[0].dtype
        R, H, d = context[0].numel() // (T * width), n_heads, width // n_heads  # R rows of all models together
        mask = torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -math.inf)
        # qkv is laid out by token, matrix products need it by head.
        by_token, by_head = (R, T, 3, H, d), (3, R, H, T, d)
        self.qkv_by_token, self.d_qkv_by_token = (t.view(by_token).permute(2, 0, 3, 1, 4) for t in qkv)
        self.context_by_token, self.d_context_by_token = (t.view(R, T, H, d).transpose(1, 2) for t in context)
        self.heads, self.d_heads = take(f"heads.{layer}", by_head, dtype), take("d_heads", by_head, dtype)
        shape = (R, H, T, d)
        self.output, self.d_output = take(f"output.{layer}", shape, dtype), take("d_output", shape, dtype)
        flat = [t.view(-1, R * H, T, d) for t in (self.heads, self.d_heads, self.output, self.d_output)]
        size = max(1, WEIGHTS // (T * T))
        self.tiles = [
            _Tile([t[:, first : first + size] for t in flat], mask, f"{layer}.{first}", take)
            for first in range(0, R * H, size)
        ]

    def forward(self) -> None:
        self.heads.copy_(self.qkv_by_token)
        for tile in self.tiles:
            tile.forward()
        self.context_by_token.copy_(self.output)

    def backward(self) -> None:
        self.d_output.copy_(self.d_context_by_token)
        for tile in self.tiles:
            tile.backward()
        self.d_qkv_by_token.copy_(self.d_heads)


class _Tile:
    """Some heads of some rows: q, k, v and output (n, T, d) with their gradients, weights (n, T, T)."""

    def __init__(self, parts: list[Tensor], mask: Tensor, name: str, take: Take) -> None:
        (self.q, self.k, self.v), (self.d_q, self.d_k, self.d_v), (self.output,), (self.d_output,) = parts
        (n, T, d), dtype = self.q.shape, mask.dtype
        self.mask, self.scale = mask, 1 / math.sqrt(d)  # not sqrt(d_model)
        self.k_t, self.v_t = self.k.transpose(1, 2), self.v.transpose(1, 2)
        # Padded: exp2 rounds the rest of a vector differently, and bits would depend on the other models.
        self.padded = take(f"weights.{name}", (padded(n * T * T),), dtype)
        self.weights, self.d_weights = self.padded[: n * T * T].view(n, T, T), take("d_weights", (n, T, T), dtype)
        self.weights_t, self.d_weights_t = self.weights.transpose(1, 2), self.d_weights.transpose(1, 2)
        self.each_row, self.product = take("each_row", (n, T, 1), dtype), take("product", (n, T, d), dtype)

    def forward(self) -> None:
        weights, each_row = self.weights, self.each_row
        # Scores in units of ln 2: exp is ten times slower than exp2 on -inf. torch's softmax is slow on short rows.
        torch.baddbmm(self.mask, self.q, self.k_t, alpha=self.scale / math.log(2), out=weights)
        torch.amax(weights, -1, keepdim=True, out=each_row)
        weights -= each_row
        self.padded.exp2_()
        torch.sum(weights, -1, keepdim=True, out=each_row)
        weights /= each_row
        torch.bmm(weights, self.v, out=self.output)

    def backward(self) -> None:
        d_weights = self.d_weights
        torch.bmm(self.weights_t, self.d_output, out=self.d_v)
        torch.bmm(self.d_output, self.v_t, out=d_weights)
        # Through the softmax, d_scores = w (d_w - sum_k d_w w), where the sum is also d_output . output.
        torch.mul(self.d_output, self.output, out=self.product)
        torch.sum(self.product, -1, keepdim=True, out=self.each_row)
        d_scores = d_weights.sub_(self.each_row).mul_(self.weights)
        torch.baddbmm(self.d_q, d_scores, self.k, beta=0, alpha=self.scale, out=self.d_q)
        torch.baddbmm(self.d_k, self.d_weights_t, self.q, beta=0, alpha=self.scale, out=self.d_k)


class FusedAttention:
    """Attention by torch's fused kernel, with a small autograd graph for its backward pass."""

    def __init__(self, qkv: Pair, context: Pair, T: int, n_heads: int, causal: bool) -> None:
        width, self.causal = context[0].size(-1), causal
        R, H, d = context[0].numel() // (T * width), n_heads, width // n_heads
        values, self.d_qkv = (t.view(R, T, 3, H, d).permute(2, 0, 3, 1, 4) for t in qkv)
        self.qkv = values.unbind(0)
        self.context, self.d_context = (t.view(R, T, H, d).transpose(1, 2) for t in context)
        self.leaves: list[Tensor] = []
        self.output = self.context

    def forward(self) -> None:
        q, k, v = self.leaves = [part.detach().requires_grad_() for part in self.qkv]
        with torch.enable_grad():
            self.output = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        self.context.copy_(self.output.detach())

    def backward(self) -> None:
        gradients = vector_jacobian(self.output, self.d_context, self.leaves)
        for target, gradient in zip(self.d_qkv, gradients, strict=True):
            target.copy_(gradient)


class CrossEntropy:
    """Cross-entropy and accuracy of logits (M, N, V) from one log-softmax; d loss / d logits goes into `d_logits`."""

    def __init__(self, d_logits: Tensor, take: Take) -> None:
        M, N, _ = d_logits.shape
        dtype = d_logits.dtype
        self.d_logits = d_logits
        self.index, self.answer = take("index", (M, N, 1), torch.int64), take("answer", (M, N, 1), dtype)
        self.top, self.scored, self.part = (take(name, (M, N), dtype) for name in ("top", "scored", "part"))
        self.scored_column, self.answer_row = self.scored.unsqueeze(-1), self.answer.squeeze(-1)
        self.minus_one = d_logits.new_full((1, 1, 1), -1.0).expand(M, N, 1)

    def __call__(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute each model's loss (nats) and accuracy, (M,), over the scored targets (M, B, T)."""
        scored, part, answer = self.scored, self.part, self.answer_row
        targets = targets.reshape(scored.shape).long()
        torch.ne(targets, IGNORE, out=scored)
        count = scored.sum(1)
        torch.clamp(targets.unsqueeze(-1), min=0, out=self.index)
        log_p = torch.log_softmax(logits, -1, out=self.d_logits)
        torch.gather(log_p, -1, self.index, out=self.answer)
        torch.amax(log_p, -1, out=self.top)
        loss = -torch.mul(answer, scored, out=part).sum(1) / count
        accuracy = torch.eq(answer, self.top, out=part).mul_(scored).sum(1) / count
        # d loss / d logits = (p - one-hot) / count on scored positions, 0 elsewhere.
        scored /= count.unsqueeze(1)
        log_p.exp_().scatter_add_(-1, self.index, self.minus_one).mul_(self.scored_column)
        return loss, accuracy


Part = Embedding | Linear | LayerNorm | Attention | FusedAttention
