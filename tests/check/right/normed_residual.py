import torch.nn as nn
import torch.nn.functional as F


class AttentionBlock(nn.Module):
    """LayerNorm before, residual after: x + attention(norm(x))."""

    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads = n_heads
        self.ln = nn.LayerNorm(d_model)
        self.q_lin, self.k_lin, self.v_lin = (nn.Linear(d_model, d_model) for _ in range(3))
        self.out_lin = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.ln(x)
        q, k, v = (
            lin(h).unflatten(2, (self.n_heads, -1)).transpose(1, 2) for lin in (self.q_lin, self.k_lin, self.v_lin)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.dropout(self.out_lin(out))
