import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim, theta=10000.0):
        super().__init__()
        self.register_buffer("rates", theta ** -(torch.arange(0, dim, 2) / dim), persistent=False)

    def forward(self, t):
        angle = torch.outer(torch.arange(t.size(-2)), self.rates)
        re, im = t.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((re * angle.cos() - im * angle.sin(), re * angle.sin() + im * angle.cos()), -1).flatten(-2)
