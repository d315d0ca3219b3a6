"""The lesson's model, one attention block and nothing else, with its gradient written out by hand.

At toy sizes most of a training step is bookkeeping: a few hundred small calls of autograd for some forty that compute.
Here are the forty. Tests hold every gradient against autograd on the ordinary model.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.core.layers import Dropout
from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.positions import LearnedPositions, Positions, SinusoidalPositions
from mhsa_cli.core.tasks.base import IGNORE

LONGEST = 64  # tokens; beyond it the (T, T) weights, kept for the backward pass, cost more than they save


def is_bare(model: TransformerLM, dtype: str) -> bool:
    """Tell whether a model is the one that is written out here: one block, softmax, no other part."""
    block = model.blocks[0]
    plain = len(model.blocks) == 1 and not block.residual and block.mlp is None and block.attn.kind == "softmax"
    unnormed = isinstance(block.attn_norm, nn.Identity) and isinstance(model.final_norm, nn.Identity)
    positions = type(model.positions) in (Positions, SinusoidalPositions, LearnedPositions)
    dropping = any(m.p > 0 for m in model.modules() if isinstance(m, Dropout))
    tied = model.lm_head.weight is model.tok_emb.weight
    biased, short = block.attn.qkv_proj.bias is not None, model.max_seq_len <= LONGEST
    return plain and unnormed and positions and biased and short and not (dropping or tied or dtype == "bfloat16")


class BareGradient:
    """Compute loss and gradients of a stack of bare models, straight into the given gradient tensors.

    `gradients` maps parameter names to tensors of the parameters' shapes (M, ...).
    """

    def __init__(self, model: TransformerLM, gradients: dict[str, Tensor]) -> None:
        self.model, self.gradients = model, gradients
        self.scale = 1 / math.sqrt(model.blocks[0].attn.d_head)  # not sqrt(d_model)

    @torch.no_grad()
    def __call__(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the gradients for ids and targets (M, B, T); returns each model's loss (nats) and accuracy, (M,)."""
        model, attn = self.model, self.model.blocks[0].attn
        M, B, T = inputs.shape
        x = model.positions.embed(model.tok_emb(inputs), model.pos[:T]).view(M, B * T, -1)
        qkv = attn.qkv_proj(x)  # (M, B*T, 3D)
        q, k, v = heads = self._split(qkv, M * B, T)  # each (M*B*H, T, d)
        mask = torch.zeros(T, T, dtype=x.dtype, device=x.device).masked_fill(~attn.causal_mask[:T, :T], -math.inf)
        weights = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=self.scale).softmax(-1)  # (M*B*H, T, T)
        context = self._merge(torch.bmm(weights, v).unsqueeze(0), M, B)  # (M, B*T, D)
        y = attn.out_proj(context)
        log_p = model.lm_head(y).log_softmax(-1)  # (M, B*T, V)

        targets = targets.view(M, B * T)
        scored = targets != IGNORE
        count = scored.sum(1)
        index = targets.clamp(min=0).unsqueeze(-1)
        answer = log_p.gather(-1, index).squeeze(-1)
        loss = -(answer * scored).sum(1) / count
        accuracy = ((answer == log_p.amax(-1)) & scored).sum(1) / count

        # d loss / d logits = (p - one-hot) / count on scored positions, 0 elsewhere.
        d_logits = log_p.exp_()
        d_logits.scatter_add_(-1, index, d_logits.new_full((1, 1, 1), -1.0).expand_as(index))
        d_logits *= (scored / count.unsqueeze(1)).unsqueeze(-1)
        d_y = self._linear("lm_head", y, d_logits)
        d_context = self._linear("blocks.0.attn.out_proj", context, d_y)
        d_heads = d_context.view(M * B, T, attn.n_heads, attn.d_head).transpose(1, 2).reshape(q.shape)
        d_qkv = torch.empty_like(heads)
        torch.bmm(weights.transpose(1, 2), d_heads, out=d_qkv[2])
        d_weights = torch.bmm(d_heads, v.transpose(1, 2))
        # Through the softmax: ds = w (dw - sum_k dw w), and through the division by sqrt(d_head).
        d_weights -= (d_weights * weights).sum(-1, keepdim=True)
        d_scores = d_weights.mul_(weights).mul_(self.scale)
        torch.bmm(d_scores, k, out=d_qkv[0])
        torch.bmm(d_scores.transpose(1, 2), q, out=d_qkv[1])
        d_x = self._linear("blocks.0.attn.qkv_proj", x, self._merge(d_qkv, M, B))
        self._embeddings(inputs, d_x.view(M, B, T, -1))
        return loss, accuracy

    def _split(self, qkv: Tensor, rows: int, T: int) -> Tensor:
        """Lay q, k and v out head by head: (M, B*T, 3D) to (3, M*B*H, T, d), in one copy."""
        attn = self.model.blocks[0].attn
        return qkv.view(rows, T, 3, attn.n_heads, attn.d_head).permute(2, 0, 3, 1, 4).reshape(3, -1, T, attn.d_head)

    def _merge(self, heads: Tensor, M: int, B: int) -> Tensor:
        """Undo `_split` for n tensors side by side: (n, M*B*H, T, d) to (M, B*T, n*D)."""
        n, _, T, d = heads.shape
        H = self.model.blocks[0].attn.n_heads
        return heads.view(n, M * B, H, T, d).permute(1, 3, 0, 2, 4).reshape(M, B * T, n * H * d)

    def _linear(self, name: str, x: Tensor, d_out: Tensor) -> Tensor:
        """Pass d_out (M, N, out) back through a linear map of x (M, N, in): fills its gradients, returns d_x."""
        torch.bmm(d_out.transpose(1, 2), x, out=self.gradients[f"{name}.weight"])
        torch.sum(d_out, 1, out=self.gradients[f"{name}.bias"])
        weight: Tensor = self.model.get_submodule(name).weight  # type: ignore[assignment]
        return torch.bmm(d_out, weight)

    def _embeddings(self, inputs: Tensor, d_x: Tensor) -> None:
        """Add up d_x (M, B, T, D) per id, and per position where positions are learned."""
        table = self.gradients["tok_emb.weight"]  # (M, V, D)
        M, V, D = table.shape
        offset = torch.arange(0, M * V, V, device=inputs.device).view(M, 1, 1)
        rows = (inputs + offset).flatten()
        table.copy_(torch.ops.aten.embedding_dense_backward(d_x.reshape(-1, D), rows, M * V, -1, False).view(M, V, D))
        if "positions.pos_emb.weight" in self.gradients:
            positions = self.gradients["positions.pos_emb.weight"].zero_()
            torch.sum(d_x, 1, out=positions[:, : d_x.size(2)])
