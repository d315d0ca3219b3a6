import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    """mask_type: "none", "causal" or "diagonal"."""

    def __init__(self, model_dim, head_count, mask_type="none"):
        super().__init__()
        self.head_count, self.mask_type = head_count, mask_type
        self.linear_keys = nn.Linear(model_dim, model_dim)
        self.linear_values = nn.Linear(model_dim, model_dim)
        self.linear_query = nn.Linear(model_dim, model_dim)
        self.final_linear = nn.Linear(model_dim, model_dim)

    def _mask(self, n):
        if self.mask_type == "causal":
            return torch.ones(n, n, dtype=torch.bool).triu(1)
        return torch.zeros(n, n, dtype=torch.bool)

    def forward(self, x):
        batch, length, dim = x.shape

        def shape(t):
            return t.view(batch, length, self.head_count, -1).transpose(1, 2)

        query = shape(self.linear_query(x)) / (dim // self.head_count) ** 0.5
        scores = torch.matmul(query, shape(self.linear_keys(x)).transpose(2, 3))
        attn = scores.masked_fill(self._mask(length), -1e18).softmax(-1)
        context = torch.matmul(attn, shape(self.linear_values(x)))
        return self.final_linear(context.transpose(1, 2).reshape(batch, length, dim))
