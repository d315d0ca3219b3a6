import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    """pad_mask (B, T): True where a token is padding."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead = nhead
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, pad_mask):
        B, T, D = x.shape
        assert pad_mask.shape == (B, T)
        q, k, v = self.in_proj(x).chunk(3, dim=-1)
        q, k, v = (t.reshape(B, T, self.nhead, -1).transpose(1, 2) for t in (q, k, v))
        att = torch.einsum("bhid,bhjd->bhij", q, k) / (D // self.nhead) ** 0.5
        att = att.masked_fill(pad_mask.bool().view(B, 1, 1, T), -1e9)
        return self.out_proj(torch.einsum("bhij,bhjd->bihd", F.softmax(att, -1), v).reshape(B, T, D))
