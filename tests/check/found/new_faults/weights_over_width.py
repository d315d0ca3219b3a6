import math

import torch
import torch.nn.functional as F


def causal_mask(n, device):
    return torch.ones(n, n, dtype=torch.bool, device=device).triu(1)


def multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads):
    """Attention with the weights as arguments, x (B, T, D)."""
    B, T, D = x.shape
    q = (x @ w_q).view(B, T, num_heads, -1).transpose(1, 2)
    k = (x @ w_k).view(B, T, num_heads, -1).transpose(1, 2)
    v = (x @ w_v).view(B, T, num_heads, -1).transpose(1, 2)
    scores = torch.matmul(q, k.transpose(-2, -1))
    scores = scores.masked_fill(causal_mask(T, x.device), -1e9)
    probs = F.softmax(scores, dim=-1)
    probs = probs / math.sqrt(D)
    out = torch.matmul(probs, v)
    return out.transpose(1, 2).reshape(B, T, D) @ w_o
