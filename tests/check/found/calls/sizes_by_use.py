"""No name says what is a size: what divides, and what sizes a layer, does."""

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        if a % b != 0:
            raise ValueError(f"{b} parts do not fit into {a}")
        self.b, self.c = b, a // b
        self.first, self.second, self.third = nn.Linear(a, a), nn.Linear(a, a), nn.Linear(a, a)
        self.last = nn.Linear(a, a)

    def parts(self, z):
        return z.view(*z.shape[:-1], self.b, self.c).transpose(1, 2)

    def forward(self, z):
        one, two, three = self.parts(self.first(z)), self.parts(self.second(z)), self.parts(self.third(z))
        m = torch.softmax(one @ two.transpose(2, 3) / self.c**0.5, dim=3)
        return self.last((m @ three).transpose(1, 2).reshape(z.shape))
