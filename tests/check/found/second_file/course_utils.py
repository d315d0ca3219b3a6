import torch


def softmax(x, dim):
    x = x - x.amax(dim, keepdim=True)
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


def attend(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / K.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(float("-inf"), dtype=scores.dtype))
    return softmax(scores, dim=-2) @ V
