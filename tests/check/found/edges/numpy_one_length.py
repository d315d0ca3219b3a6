import numpy as np


class SelfAttention:
    def __init__(self, n_tokens, d_model, n_heads):
        self.n_tokens, self.n_heads = n_tokens, n_heads
        rng = np.random.default_rng(3)
        self.Wq, self.Wk, self.Wv, self.Wo = (rng.normal(size=(d_model, d_model)) / np.sqrt(d_model) for _ in range(4))
        self.future = np.triu(np.ones((n_tokens, n_tokens), dtype=bool), 1)

    def __call__(self, x):
        split = (-1, self.n_tokens, self.n_heads, x.shape[-1] // self.n_heads)
        q, k, v = (np.swapaxes((x @ w).reshape(split), 1, 2) for w in (self.Wq, self.Wk, self.Wv))
        scores = np.where(self.future, -1e9, q @ np.swapaxes(k, 2, 3) / np.sqrt(split[-1]))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.swapaxes(weights @ v, 1, 2).reshape(x.shape) @ self.Wo
