import numpy as np


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def mha(x, W_q, W_k, W_v, W_o, n_heads):
    B, T, D = x.shape
    q = np.reshape(x @ W_q, (B, n_heads, T, -1))
    k = np.reshape(x @ W_k, (B, T, n_heads, -1)).transpose(0, 2, 3, 1)
    v = np.reshape(x @ W_v, (B, T, n_heads, -1)).transpose(0, 2, 1, 3)
    logits = np.matmul(q, k) / np.sqrt(q.shape[-1])
    logits[:, :, np.triu_indices(T, 1)[0], np.triu_indices(T, 1)[1]] = -np.inf
    y = np.matmul(softmax(logits, -1), v)
    return np.concatenate(list(y.transpose(1, 0, 2, 3)), axis=-1) @ W_o
