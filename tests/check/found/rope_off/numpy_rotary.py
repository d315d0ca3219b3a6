import numpy as np


def rotate(t, base=10000.0):
    """Rotary positions for t of shape (B, H, T, d)."""
    d = t.shape[-1]
    angle = np.arange(t.shape[-2])[:, None] * base ** (-np.arange(0, d, 2) / d)
    a, b = t[..., ::2], t[..., 1::2]
    out = np.empty_like(t)
    out[..., ::2] = a * np.cos(angle) - b * np.sin(angle)
    out[..., 1::2] = a * np.sin(angle) + b * np.cos(angle)
    return out


def attention(x, wq, wk, wv, wo, n_heads, rotary=None):
    B, T, D = x.shape
    q, k, v = ((x @ w).reshape(B, T, n_heads, D // n_heads).swapaxes(1, 2) for w in (wq, wk, wv))
    if rotary is not None:
        q, k = rotary(q), rotary(k)
    s = q @ k.swapaxes(-1, -2) / np.sqrt(D // n_heads)
    s = s + np.triu(np.full((T, T), -1e30), 1)
    w = np.exp(s - s.max(-1, keepdims=True))
    w = w / w.sum(-1, keepdims=True)
    return (w @ v).swapaxes(1, 2).reshape(B, T, D) @ wo
