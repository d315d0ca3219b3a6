"""Functions that receive their weights, as a course's tests call them."""

import math

import torch
from torch import Tensor


def _heads(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(*x.shape[:-1], num_heads, -1).transpose(-3, -2)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seq = q.shape[-2]
    allowed = torch.tril(torch.ones(seq, seq, dtype=torch.bool, device=q.device))
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~allowed, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    q, k, v = (_heads(in_features @ W.T, num_heads) for W in (q_proj_weight, k_proj_weight, v_proj_weight))
    return _attend(q, k, v) @ o_proj_weight.T


def _turn(x: Tensor, theta: float, positions: Tensor) -> Tensor:
    d = x.shape[-1]
    angle = positions[..., None] * theta ** (-torch.arange(0, d, 2, device=x.device) / d)
    if angle.dim() == 3:
        angle = angle.unsqueeze(1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).flatten(-2)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    q, k, v = (_heads(in_features @ W.T, num_heads) for W in (q_proj_weight, k_proj_weight, v_proj_weight))
    q, k = _turn(q, theta, token_positions), _turn(k, theta, token_positions)
    return _attend(q, k, v) @ o_proj_weight.T
