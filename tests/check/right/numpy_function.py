import numpy as np


def softmax(x, axis=-1):
    exps = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return exps / np.sum(exps, axis=axis, keepdims=True)


def causal_mask(T):
    """True where a key lies in the future."""
    return np.triu(np.ones((T, T), dtype=bool), k=1)


def split_heads(x, num_heads):
    B, T, D = x.shape
    return np.transpose(x.reshape(B, T, num_heads, D // num_heads), (0, 2, 1, 3))


def merge_heads(x):
    B, H, T, d = x.shape
    return np.transpose(x, (0, 2, 1, 3)).reshape(B, T, H * d)


def multi_head_causal_attention(X, W_Q, W_K, W_V, W_O, num_heads):
    _, T, D = X.shape
    Q, K, V = (split_heads(X @ W, num_heads) for W in (W_Q, W_K, W_V))
    scores = Q @ np.swapaxes(K, 2, 3) / np.sqrt(D // num_heads)
    scores = np.where(causal_mask(T)[None, None], -1e9, scores)
    weights = softmax(scores)
    return merge_heads(weights @ V) @ W_O, weights
