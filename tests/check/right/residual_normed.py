import numpy as np
import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    """Residual and LayerNorm after: norm(x + attention(x)); widths of keys and values are given."""

    def __init__(self, n_head, d_model, d_k, d_v, dropout=0.1):
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs = nn.Linear(d_model, n_head * d_k, bias=False)
        self.w_ks = nn.Linear(d_model, n_head * d_k, bias=False)
        self.w_vs = nn.Linear(d_model, n_head * d_v, bias=False)
        self.fc = nn.Linear(n_head * d_v, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, q, k, v, mask=None):
        residual, rows = q, q.size(0)
        q = self.w_qs(q).view(rows, -1, self.n_head, self.d_k).transpose(1, 2)
        k = self.w_ks(k).view(rows, -1, self.n_head, self.d_k).transpose(1, 2)
        v = self.w_vs(v).view(rows, -1, self.n_head, self.d_v).transpose(1, 2)
        attn = torch.matmul(q / np.sqrt(self.d_k), k.transpose(2, 3))
        if mask is not None:
            attn = attn.masked_fill(mask == 0, -1e9)
        attn = torch.softmax(attn, dim=-1)
        out = torch.matmul(self.dropout(attn), v).transpose(1, 2).flatten(2)
        return self.layer_norm(self.dropout(self.fc(out)) + residual), attn
