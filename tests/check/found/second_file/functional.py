"""Functions that several blocks share."""

import torch


def split_heads(t, num_heads):
    batch, length, dim = t.shape
    return t.reshape(batch, length, num_heads, dim // num_heads).permute(0, 2, 1, 3)


def merge_heads(t):
    return t.permute(0, 2, 1, 3).flatten(start_dim=2)


def dot_product_attention(q, k, v, mask=None, dropout=None):
    scores = torch.matmul(q, k.transpose(-1, -2))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1)
    dropped = weights if dropout is None else dropout(weights)
    return torch.matmul(dropped, v), weights
