import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_model, num_heads, dropout=0.0):
        super().__init__()
        self.mha = nn.MultiheadAttention(d_model, num_heads, dropout=dropout, batch_first=True)

    def forward(self, x):
        blocked = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        y, _ = self.mha(x, x, x, attn_mask=blocked, need_weights=False)
        return y
