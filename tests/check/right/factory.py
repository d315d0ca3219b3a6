import torch
from torch import nn


class _Attention(nn.Module):
    def __init__(self, projection: nn.Linear, mixer: nn.Linear, n_heads: int) -> None:
        super().__init__()
        self.projection, self.mixer, self.n_heads = projection, mixer, n_heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.projection(x).view(b, t, 3, self.n_heads, d // self.n_heads).permute(2, 0, 3, 1, 4)
        keep = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        weights = (q @ k.mT / (d // self.n_heads) ** 0.5).masked_fill(~keep, -torch.inf).softmax(-1)
        return self.mixer((weights @ v).transpose(1, 2).reshape(b, t, d))


def make_attention(d_model: int, n_heads: int) -> nn.Module:
    if d_model % n_heads:
        raise ValueError("n_heads must divide d_model")
    return _Attention(nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model), n_heads)
