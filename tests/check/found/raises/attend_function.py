import torch


def attend(q, k, v):
    scores = torch.matmul(q, k.transpose(-2, -1)) / torch.sqrt(q.shape[-1])
    return torch.softmax(scores, dim=-1) @ v
