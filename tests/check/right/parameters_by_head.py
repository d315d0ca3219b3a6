import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Weights with an axis for the heads: W_Q (n_heads, d_model, d_head), W_O (n_heads, d_head, d_model)."""

    IGNORE = -1e5

    def __init__(self, d_model: int, n_heads: int, d_head: int):
        super().__init__()
        self.d_head = d_head
        self.W_Q = nn.Parameter(torch.empty(n_heads, d_model, d_head))
        self.W_K = nn.Parameter(torch.empty(n_heads, d_model, d_head))
        self.W_V = nn.Parameter(torch.empty(n_heads, d_model, d_head))
        self.W_O = nn.Parameter(torch.empty(n_heads, d_head, d_model))
        self.b_Q = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_K = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_V = nn.Parameter(torch.zeros(n_heads, d_head))
        self.b_O = nn.Parameter(torch.zeros(d_model))
        for weight in (self.W_Q, self.W_K, self.W_V, self.W_O):
            nn.init.normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        q = torch.einsum("btm,hmd->bthd", x, self.W_Q) + self.b_Q
        k = torch.einsum("btm,hmd->bthd", x, self.W_K) + self.b_K
        v = torch.einsum("btm,hmd->bthd", x, self.W_V) + self.b_V
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / self.d_head**0.5
        future = torch.triu(torch.ones(scores.shape[-2:], device=x.device), diagonal=1).bool()
        pattern = scores.masked_fill(future, self.IGNORE).softmax(-1)
        z = torch.einsum("bhqk,bkhd->bqhd", pattern, v)
        return torch.einsum("bqhd,hdm->bqm", z, self.W_O) + self.b_O
