import torch
from torch import nn, einsum


def exists(val):
    return val is not None


def default(val, d):
    return val if exists(val) else d


class CrossAttention(nn.Module):
    def __init__(self, query_dim, context_dim=None, heads=8, dim_head=6):
        super().__init__()
        inner_dim = dim_head * heads
        context_dim = default(context_dim, query_dim)
        self.scale = dim_head**-0.5
        self.heads = heads
        self.to_q = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_k = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_v = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, query_dim), nn.Dropout(0.0))

    def forward(self, x, context=None, mask=None):
        h, b = self.heads, x.shape[0]
        q = self.to_q(x)
        context = default(context, x)
        k, v = self.to_k(context), self.to_v(context)
        q, k, v = (t.view(b, t.shape[1], h, -1).transpose(1, 2).reshape(b * h, t.shape[1], -1) for t in (q, k, v))
        sim = einsum("b i d, b j d -> b i j", q, k) * self.scale
        if exists(mask):
            mask = mask.reshape(b, -1)[:, None, :].repeat_interleave(h, dim=0)
            sim.masked_fill_(~mask, -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1)
        out = einsum("b i j, b j d -> b i d", attn, v)
        out = out.view(b, h, out.shape[1], -1).transpose(1, 2).flatten(2)
        return self.to_out(out)
