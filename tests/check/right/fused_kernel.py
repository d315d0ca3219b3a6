import torch.nn as nn
import torch.nn.functional as F


class CausalAttention(nn.Module):
    def __init__(self, dim, num_heads, bias=False, dropout=0.0):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv_proj = nn.Linear(dim, 3 * dim, bias=bias)
        self.o_proj = nn.Linear(dim, dim, bias=bias)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in self.qkv_proj(x).chunk(3, dim=-1))
        p = self.dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(-2))
