import numpy as np


class Attention:
    def __init__(self, embed_size, heads):
        self.embed_size, self.heads = embed_size, heads
        self.Wq = np.random.randn(embed_size, embed_size) * 0.02
        self.Wk = np.random.randn(embed_size, embed_size) * 0.02
        self.Wv = np.random.randn(embed_size, embed_size) * 0.02
        self.Wo = np.random.randn(embed_size, embed_size) * 0.02

    def forward(self, x):
        N, T, E = x.shape
        q, k, v = (np.transpose((x @ W).reshape(N, T, self.heads, -1), (0, 2, 1, 3)) for W in (self.Wq, self.Wk, self.Wv))
        energy = np.matmul(q, np.transpose(k, (0, 1, 3, 2)))
        energy = np.exp(energy - energy.max(axis=-1, keepdims=True))
        attention = energy / energy.sum(axis=-1, keepdims=True) / np.sqrt(self.embed_size)
        out = np.transpose(np.matmul(attention, v), (0, 2, 1, 3)).reshape(N, T, E)
        return np.matmul(out, self.Wo)
