import numpy as np


def softmax(a):
    a = np.exp(a - np.max(a, axis=-1, keepdims=True))
    return a / np.sum(a, axis=-1, keepdims=True)


def self_attention(X, Wq, Wk, Wv, Wo, num_heads, causal=False):
    batch, seq, width = X.shape
    dk = width // num_heads
    Q = (X @ Wq).reshape(batch, seq, num_heads, dk).transpose(0, 2, 1, 3)
    K = (X @ Wk).reshape(batch, seq, num_heads, dk).transpose(0, 2, 1, 3)
    V = (X @ Wv).reshape(batch, seq, num_heads, dk).transpose(0, 2, 1, 3)
    logits = np.einsum("bhqd,bhkd->bhqk", Q, K) / np.sqrt(dk)
    if causal:
        future = np.arange(seq)[None, :] > np.arange(seq)[:, None]
        logits = np.where(future, -np.inf, logits)
    context = softmax(logits) @ V
    return context.transpose(0, 2, 1, 3).reshape(batch, seq, width) @ Wo
