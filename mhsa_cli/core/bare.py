"""The lesson's model, one attention block and nothing else, with its gradient written out by hand.

At toy sizes most of a training step is bookkeeping: a few hundred small calls of autograd for some forty that compute.
Here are the forty. Tests hold every gradient against autograd on the ordinary model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mhsa_cli.core.layers import Dropout, Linear
from mhsa_cli.core.model import Block, TransformerLM
from mhsa_cli.core.positions import LearnedPositions, Positions, SinusoidalPositions
from mhsa_cli.core.tasks.base import IGNORE

LONGEST = 64  # tokens; beyond it the (T, T) weights, kept for the backward pass, cost more than they save


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

    `gradients` maps parameter names to tensors of the parameters' shapes (M, ...). Every intermediate lies in a buffer
    that is used again at the next step: fresh memory would cost more than some of the products.
    """

    def __init__(self, model: TransformerLM, gradients: dict[str, Tensor]) -> None:
        self.model, self.attn, self.gradients = model, model.attention[0], gradients
        self.scale = 1 / math.sqrt(self.attn.d_head)  # not sqrt(d_model)
        self._buffers: dict[str, Tensor] = {}
        self._maps: dict[str, Linear] = {
            "lm_head": model.lm_head,
            "blocks.0.attn.out_proj": self.attn.out_proj,
            "blocks.0.attn.qkv_proj": self.attn.qkv_proj,
        }

    @torch.no_grad()
    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the gradients for ids and targets (M, B, T); returns each model's loss (nats) and accuracy, (M,)."""
        model = self.model
        M, B, T = inputs.shape
        x = model.positions.embed(model.tok_emb(inputs), model.pos[:T]).view(M, B * T, -1)
        qkv = self._linear("blocks.0.attn.qkv_proj", x)  # (M, B*T, 3D)
        q, k, v = heads = self._split(qkv, M * B, T)  # each (M*B*H, T, d)
        weights = self._weights(q, k)  # (M*B*H, T, T)
        context = self._merge("context", torch.bmm(weights, v, out=self._buffer("mixed", v.shape)), M, B)
        y = self._linear("blocks.0.attn.out_proj", context)  # (M, B*T, D)
        logits = self._linear("lm_head", y)  # (M, B*T, V)
        loss, accuracy, d_logits = self._answers(logits, targets.view(M, B * T))

        d_y = self._linear_back("lm_head", y, d_logits)
        d_context = self._linear_back("blocks.0.attn.out_proj", context, d_y)
        by_head = d_context.view(M * B, T, self.attn.n_heads, self.attn.d_head).transpose(1, 2)
        d_mixed = self._buffer("d_mixed", v.shape)
        d_mixed.view(by_head.shape).copy_(by_head)
        d_q, d_k, d_v = d_heads = self._buffer("d_heads", heads.shape)
        torch.bmm(weights.transpose(1, 2), d_mixed, out=d_v)
        d_weights = torch.bmm(d_mixed, v.transpose(1, 2), out=self._buffer("d_weights", weights.shape))
        # Through the softmax, ds = w (dw - sum_k dw w), and through the division by sqrt(d_head).
        product = torch.mul(d_weights, weights, out=self._buffer("product", weights.shape))
        d_weights -= product.sum(-1, keepdim=True)
        d_scores = d_weights.mul_(weights).mul_(self.scale)
        torch.bmm(d_scores, k, out=d_q)
        torch.bmm(d_scores.transpose(1, 2), q, out=d_k)
        d_x = self._linear_back("blocks.0.attn.qkv_proj", x, self._merge("d_qkv", d_heads, M, B))
        self._embeddings(inputs, d_x.view(M, B, T, -1))
        return loss, accuracy

    def _buffer(self, name: str, shape: Sequence[int]) -> Tensor:
        """Give the buffer called `name`, made anew only when its shape changes."""
        found = self._buffers.get(name)
        if found is None or found.shape != shape:
            like = self.model.tok_emb.weight
            found = self._buffers[name] = torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
        return found

    def _linear(self, name: str, x: Tensor) -> Tensor:
        """Apply a linear map to x (M, N, in)."""
        weight, bias = self._maps[name].weight, self._maps[name].bias
        assert bias is not None
        out = self._buffer(name, (*x.shape[:2], weight.size(1)))
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2), out=out)

    def _linear_back(self, name: str, x: Tensor, d_out: Tensor) -> Tensor:
        """Pass d_out (M, N, out) back through a linear map of x (M, N, in): fills its gradients, returns d_x."""
        torch.bmm(d_out.transpose(1, 2), x, out=self.gradients[f"{name}.weight"])
        torch.sum(d_out, 1, out=self.gradients[f"{name}.bias"])
        return torch.bmm(d_out, self._maps[name].weight, out=self._buffer(f"d_{name}", x.shape))

    def _split(self, qkv: Tensor, rows: int, T: int) -> Tensor:
        """Lay q, k and v out head by head: (M, B*T, 3D) to (3, M*B*H, T, d), in one copy."""
        H, d = self.attn.n_heads, self.attn.d_head
        heads = self._buffer("heads", (3, rows * H, T, d))
        heads.view(3, rows, H, T, d).copy_(qkv.view(rows, T, 3, H, d).permute(2, 0, 3, 1, 4))
        return heads

    def _merge(self, name: str, heads: Tensor, M: int, B: int) -> Tensor:
        """Undo `_split`, for one tensor (M*B*H, T, d) or for n side by side: to (M, B*T, n*D)."""
        H, (T, d) = self.attn.n_heads, heads.shape[-2:]
        n = len(heads) if heads.dim() == 4 else 1
        merged = self._buffer(name, (M, B * T, n * H * d))
        merged.view(M * B, T, n, H, d).copy_(heads.view(n, M * B, H, T, d).permute(1, 3, 0, 2, 4))
        return merged

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Compute the attention weights of q and k (M*B*H, T, d): (M*B*H, T, T)."""
        T = q.size(1)
        mask = self._buffers.get("mask")
        if mask is None or len(mask) != T:
            causal = self.attn.causal_mask[:T, :T]
            mask = torch.zeros(T, T, dtype=q.dtype, device=q.device).masked_fill(~causal, -math.inf)
            self._buffers["mask"] = mask
        weights = self._buffer("weights", (len(q), T, T))
        torch.baddbmm(mask, q, k.transpose(1, 2), alpha=self.scale, out=weights)
        # The softmax in its four parts: torch's own is slow on rows this short.
        weights -= weights.amax(-1, keepdim=True)
        weights.exp_()
        weights /= weights.sum(-1, keepdim=True)
        return weights

    def _answers(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Score logits (M, N, V) against targets (M, N): loss (M,), accuracy (M,), and d loss / d logits in place."""
        scored = targets != IGNORE
        count = scored.sum(1)
        index = targets.clamp(min=0).unsqueeze(-1)
        log_p = torch.log_softmax(logits, -1, out=self._buffer("log_p", logits.shape))
        answer = log_p.gather(-1, index).squeeze(-1)
        loss = -(answer * scored).sum(1) / count
        accuracy = ((answer == log_p.amax(-1)) & scored).sum(1) / count
        # d loss / d logits = (p - one-hot) / count on scored positions, 0 elsewhere.
        d_logits = log_p.exp_()
        d_logits.scatter_add_(-1, index, d_logits.new_full((1, 1, 1), -1.0).expand_as(index))
        d_logits *= (scored / count.unsqueeze(1)).unsqueeze(-1)
        return loss, accuracy, d_logits

    def _embeddings(self, inputs: Tensor, d_x: Tensor) -> None:
        """Add up d_x (M, B, T, D) per id, and per position where positions are learned."""
        table = self.gradients["tok_emb.weight"].zero_()  # (M, V, D)
        M, V, D = table.shape
        offset = torch.arange(0, M * V, V, device=inputs.device).view(M, 1, 1)
        table.view(M * V, D).index_add_(0, (inputs + offset).flatten(), d_x.view(-1, D))
        if "positions.pos_emb.weight" in self.gradients:
            positions = self.gradients["positions.pos_emb.weight"].zero_()
            torch.sum(d_x, 1, out=positions[:, : d_x.size(2)])
