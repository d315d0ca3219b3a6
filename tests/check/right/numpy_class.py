import numpy as np


def softmax(x, axis):
    top = x.max(axis=axis, keepdims=True)
    e = np.exp(x - top)
    return e / e.sum(axis=axis, keepdims=True)


def scaled_dot_product_attention(Q, K, V, mask=None):
    """Q, K, V (..., L, d) to the output (..., L, d) and the weights (..., L, L); mask is True where allowed."""
    scores = (Q @ K.swapaxes(-1, -2)) * Q.shape[-1] ** -0.5
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores, axis=-1)
    return weights @ V, weights


class MultiHeadAttention:
    def __init__(self, d_model: int, n_heads: int, seed: int = 0):
        assert d_model % n_heads == 0
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        draw = np.random.default_rng(seed).standard_normal
        self.W_q, self.W_k, self.W_v, self.W_o = (draw((d_model, d_model)) / np.sqrt(d_model) for _ in range(4))

    def _split(self, x):
        batch, length, _ = x.shape
        return x.reshape(batch, length, self.n_heads, self.d_head).transpose(0, 2, 1, 3)

    def forward(self, x, mask=None):
        Q, K, V = self._split(x @ self.W_q), self._split(x @ self.W_k), self._split(x @ self.W_v)
        out, _ = scaled_dot_product_attention(Q, K, V, mask)
        return out.transpose(0, 2, 1, 3).reshape(x.shape) @ self.W_o
