import torch.nn as nn
import torch.nn.functional as F


class EncoderSelfAttention(nn.Module):
    """Self-attention of an encoder: every token sees all others."""

    def __init__(self, hidden_dim: int, num_heads: int, attn_drop: float = 0.0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_dim // num_heads
        self.is_causal = False
        self.attn_drop = attn_drop
        self.qkv = nn.Linear(hidden_dim, hidden_dim * 3, bias=True)
        self.proj = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        p = self.attn_drop if self.training else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.is_causal)
        return self.proj(x.transpose(1, 2).reshape(B, N, C))
