import numpy as np


def softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)


def divide(t, heads):
    """(B, T, D) to (B, H, T, d)."""
    B, T, D = t.shape
    return t.reshape(B, T, heads, D // heads).transpose(0, 2, 1, 3)


def combine(t):
    """(B, H, T, d) to (B, T, D)."""
    B, H, T, d = t.shape
    return t.reshape(B, T, H * d)
