import numpy as np


class SelfAttention:
    """NumPy; the three projections are one array (3, width, width)."""

    def __init__(self, width, n_heads, rng=None):
        rng = rng or np.random.default_rng(0)
        self.n_heads = n_heads
        self.qkv = rng.standard_normal((3, width, width)) / width**0.5
        self.proj = rng.standard_normal((width, width)) / width**0.5

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = np.einsum("btd,nde->nbte", x, self.qkv).reshape(3, B, T, self.n_heads, -1).transpose(0, 1, 3, 2, 4)
        s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(D / self.n_heads)
        s[:, :, ~np.tri(T, dtype=bool)] = -np.inf
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return np.einsum("bhij,bhjd->bihd", p, v).reshape(B, T, D) @ self.proj
