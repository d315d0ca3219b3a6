"""The layer of the first GPT: a linear map whose weight is (in, out)."""

import torch
import torch.nn as nn


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight).view(*x.size()[:-1], self.nf)


class Attention(nn.Module):
    def __init__(self, nx, n_ctx, n_head, scale=True):
        super().__init__()
        self.register_buffer("b", torch.tril(torch.ones(n_ctx, n_ctx)).view(1, 1, n_ctx, n_ctx))
        self.n_head, self.split_size, self.scale = n_head, nx, scale
        self.c_attn = Conv1D(nx * 3, nx)
        self.c_proj = Conv1D(nx, nx)

    def _attn(self, q, k, v):
        w = torch.matmul(q, k)
        if self.scale:
            w = w / v.size(-1) ** 0.5
        n = w.size(-1)
        w = w * self.b[:, :, :n, :n] + -1e9 * (1 - self.b[:, :, :n, :n])
        return torch.matmul(nn.functional.softmax(w, dim=-1), v)

    def split_heads(self, x, k=False):
        x = x.view(*x.size()[:-1], self.n_head, x.size(-1) // self.n_head)
        return x.permute(0, 2, 3, 1) if k else x.permute(0, 2, 1, 3)

    def forward(self, x):
        query, key, value = self.c_attn(x).split(self.split_size, dim=2)
        a = self._attn(self.split_heads(query), self.split_heads(key, k=True), self.split_heads(value))
        a = a.permute(0, 2, 1, 3).contiguous()
        return self.c_proj(a.view(*a.size()[:-2], -1))
