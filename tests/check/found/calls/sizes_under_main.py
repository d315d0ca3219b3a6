import numpy as np


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


class MultiHeadAttention:
    def __init__(self):
        self.params = {name: np.random.randn(EMBED_DIM, EMBED_DIM) / EMBED_DIM**0.5 for name in ("wq", "wk", "wv", "wo")}

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            (x @ self.params[n]).reshape(b, t, NUM_HEADS, EMBED_DIM // NUM_HEADS).swapaxes(1, 2)
            for n in ("wq", "wk", "wv")
        )
        weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(EMBED_DIM // NUM_HEADS))
        return (weights @ v).swapaxes(1, 2).reshape(b, t, EMBED_DIM) @ self.params["wo"]


if __name__ == "__main__":
    EMBED_DIM = 16
    NUM_HEADS = 2
    print(MultiHeadAttention().forward(np.zeros((1, 3, EMBED_DIM))).shape)
