import torch
from torch import nn


class Attention(nn.Module):
    """freqs_cos and freqs_sin are (T, d_head / 2), for neighbouring features."""

    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        self.n_local_heads, self.head_dim = n_heads, dim // n_heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    @staticmethod
    def rotate(x, freqs_cos, freqs_sin):
        xr, xi = x.reshape(x.shape[:-1] + (-1, 2)).unbind(-1)
        cos, sin = freqs_cos[None, :, None, :], freqs_sin[None, :, None, :]
        return torch.stack([xr * cos - xi * sin, xr * sin + xi * cos], dim=-1).flatten(3)

    def forward(self, x: torch.Tensor, freqs_cos: torch.Tensor, freqs_sin: torch.Tensor):
        bsz, seqlen, _ = x.shape
        xq = self.rotate(self.wq(x).view(bsz, seqlen, self.n_local_heads, self.head_dim), freqs_cos, freqs_sin)
        xk = self.rotate(self.wk(x).view(bsz, seqlen, self.n_local_heads, self.head_dim), freqs_cos, freqs_sin)
        xv = self.wv(x).view(bsz, seqlen, self.n_local_heads, self.head_dim)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        scores = torch.matmul(xq, xk.transpose(2, 3)) / self.head_dim**0.5
        scores = scores + torch.full((1, 1, seqlen, seqlen), float("-inf")).triu(1)
        return self.wo(torch.matmul(scores.softmax(-1), xv).transpose(1, 2).contiguous().view(bsz, seqlen, -1))
