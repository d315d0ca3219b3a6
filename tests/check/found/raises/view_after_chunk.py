import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        q = q.view(b * self.heads, n, d // self.heads)
        k = k.view(b * self.heads, n, d // self.heads)
        v = v.view(b * self.heads, n, d // self.heads)
        dots = torch.bmm(q, k.transpose(1, 2)) * (d // self.heads) ** -0.5
        return self.to_out(torch.bmm(dots.softmax(dim=-1), v).view(b, n, d))
