"""Head widths that a fast kernel wants: other sizes have to be tried."""

import torch.nn as nn
import torch.nn.functional as F


class FastAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        assert self.head_dim % 8 == 0, "head_dim must be a multiple of 8"
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv_proj(x).view(b, s, 3, self.num_heads, self.head_dim).unbind(2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))
