def to_heads(t, n):
    return t.reshape(t.shape[0], t.shape[1], n, -1).transpose(1, 2)


def from_heads(t):
    return t.transpose(1, 2).reshape(t.shape[0], t.shape[2], -1)
