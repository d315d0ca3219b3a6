import torch


def causal(n):
    return torch.full((n, n), float("-inf")).triu(1)
