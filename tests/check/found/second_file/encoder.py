import torch.nn as nn

import functional as fn


class MultiheadSelfAttention(nn.Module):
    def __init__(self, model_dim: int, num_heads: int, dropout_p: float = 0.1):
        super().__init__()
        self.num_heads = num_heads
        self.query_proj = nn.Linear(model_dim, model_dim)
        self.key_proj = nn.Linear(model_dim, model_dim)
        self.value_proj = nn.Linear(model_dim, model_dim)
        self.output_proj = nn.Linear(model_dim, model_dim)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x, mask=None):
        q = fn.split_heads(self.query_proj(x), self.num_heads)
        k = fn.split_heads(self.key_proj(x), self.num_heads)
        v = fn.split_heads(self.value_proj(x), self.num_heads)
        context, weights = fn.dot_product_attention(q, k, v, mask, self.dropout)
        return self.output_proj(fn.merge_heads(context)), weights
