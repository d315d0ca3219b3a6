"""What a course's functions should give: plain formulas and loops in float64, from weights as (d_out, d_in)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

Array = np.ndarray
Weights = Mapping[str, Array]


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def swiglu(w1: Array, w2: Array, w3: Array, x: Array) -> Array:
    return (silu(x @ w1.T) * (x @ w3.T)) @ w2.T


def rmsnorm(x: Array, scale: Array, eps: float) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


def turned(x: Array, position: int, theta: float) -> Array:
    """Turn one vector, pair by pair."""
    out = np.empty_like(x)
    for i in range(0, len(x), 2):
        angle = position / theta ** (i / len(x))
        out[i] = x[i] * np.cos(angle) - x[i + 1] * np.sin(angle)
        out[i + 1] = x[i] * np.sin(angle) + x[i + 1] * np.cos(angle)
    return out


def mixed(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Attention of one head, query by query and key by key: q (Tq, d), k and v (Tk, d)."""
    out = np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        powers = np.array([np.exp(q[t] @ k[s] / np.sqrt(len(q[t]))) if mask[t, s] else 0.0 for s in range(len(k))])
        out[t] = powers @ v / powers.sum()
    return out


def attention(
    weights: Sequence[Array], n_heads: int, x: Array, positions: Array | None = None, theta: float = 10000.0
) -> Array:
    """Causal attention of x (..., T, d_model), row by row and head by head; positions (..., T) turn q and k."""
    q_map, k_map, v_map, out_map = weights
    rows, size = x.reshape(-1, *x.shape[-2:]), len(q_map) // n_heads
    places = None if positions is None else np.broadcast_to(positions, x.shape[:-1]).reshape(len(rows), -1)
    mask = np.tril(np.ones((x.shape[-2],) * 2, dtype=bool))
    out = np.zeros((*rows.shape[:2], len(v_map)))
    for n, row in enumerate(rows):
        for h in range(n_heads):
            part = slice(h * size, (h + 1) * size)
            q, k, v = (row @ m[part].T for m in (q_map, k_map, v_map))
            if places is not None:
                q, k = (np.stack([turned(y[t], places[n, t], theta) for t in range(len(y))]) for y in (q, k))
            out[n][:, part] = mixed(q, k, v, mask)
    return (out @ out_map.T).reshape(x.shape)


def block(weights: Weights, prefix: str, n_heads: int, theta: float, x: Array) -> Array:
    """Pre-norm block: x + attention(norm(x)), then + swiglu(norm(x)); RMSNorm's eps is 1e-5."""
    own = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
    maps = [own[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output")]
    x = x + attention(maps, n_heads, rmsnorm(x, own["ln1.weight"], 1e-5), np.arange(x.shape[-2]), theta)
    return x + swiglu(*(own[f"ffn.w{n}.weight"] for n in (1, 2, 3)), rmsnorm(x, own["ln2.weight"], 1e-5))


def lm(weights: Weights, n_layers: int, n_heads: int, theta: float, ids: Array) -> Array:
    x = weights["token_embeddings.weight"][ids]
    for layer in range(n_layers):
        x = block(weights, f"layers.{layer}.", n_heads, theta, x)
    return rmsnorm(x, weights["ln_final.weight"], 1e-5) @ weights["lm_head.weight"].T


def cross_entropy(logits: Array, targets: Array) -> float:
    """Mean of -ln p(target), with the largest logit taken away first, so that no power overflows."""
    shifted = logits - logits.max(-1, keepdims=True)
    return float(np.mean([math.log(np.exp(row).sum()) - row[t] for row, t in zip(shifted, targets, strict=True)]))


def adamw(
    w: Array, gradients: Sequence[Array], lr: float, betas: tuple[float, float], eps: float, decay: float
) -> Array:
    """Decoupled weight decay, then Adam with bias correction, a step for each gradient."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
        w = w - lr * decay * w
        w = w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return w
