import torch
from torch import nn
from torch.nn import functional as F


class GroupedQueryAttention(nn.Module):
    """Half as many keys and values as queries: two query heads share each."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        if d_model % n_heads or n_heads % 2:
            raise ValueError("n_heads must be even and divide d_model")
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_heads // 2, d_model // n_heads
        self.wq = nn.Linear(d_model, d_model, bias=False)
        self.wk = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(b, t, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(b, t, self.n_kv_heads, self.head_dim).transpose(1, 2)
        k, v = (s.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for s in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))
