"""A file as somebody would write it: attention blocks for `model.attention`, right ones and ones that go wrong."""

from __future__ import annotations

import sys
from pathlib import Path

TEXT = '''\
import math
import sys

import torch
from torch import nn


class Mine(nn.Module):
    """Right, with dropout of its own; it gives its weights."""

    sys.own_block_was_run = True

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.heads)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        self.kept = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.out((self.dropout(self.kept) @ v).transpose(1, 2).reshape(B, T, D)), self.kept


class Silent(Mine):
    """As right, but it gives no weights: they are recovered from its projections."""

    def forward(self, x):
        return super().forward(x)[0]


class Quiet(Mine):
    """Gives no weights, and a factor of its own keeps them from being recovered."""

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.factor = nn.Parameter(torch.full((1,), 0.5), requires_grad=False)

    def forward(self, x):
        return self.factor * super().forward(x)[0]


class Listed(Mine):
    """Right, and a second output layer hides from parameters() in a plain list."""

    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.last = [nn.Linear(d_model, d_model)]

    def forward(self, x):
        y, weights = super().forward(x)
        return self.last[0](y), weights


class Future(Mine):
    def forward(self, x):
        return super().forward(x.flip(1))[0].flip(1)


class Narrow(Mine):
    def forward(self, x):
        return super().forward(x)[0][..., :-1]


class Infinite(Mine):
    def forward(self, x):
        return super().forward(x)[0] / 0


class Unbuilt(Mine):
    def __init__(self, d_model, n_heads):
        raise RuntimeError("no such width")


class Raises(Mine):
    def forward(self, x):
        raise ValueError("what is this?")


class Counting(Mine):
    def __init__(self, d_model, n_heads):
        super().__init__(d_model, n_heads)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class Detached(Mine):
    def forward(self, x):
        return super().forward(x)[0].detach()


class Fixed(Mine):
    """Reads rows of its full length and no others."""

    def __init__(self, d_model, n_heads, max_seq_len):
        super().__init__(d_model, n_heads)
        self.length = max_seq_len

    def forward(self, x):
        assert x.shape[1] == self.length
        return super().forward(x)
'''


class Marker:
    """Whether the file was run in this process since `unlink`."""

    def exists(self) -> bool:
        return hasattr(sys, "own_block_was_run")

    def unlink(self) -> None:
        vars(sys).pop("own_block_was_run", None)


def write(folder: Path = Path()) -> Marker:
    """Write the file into a folder; returns what tells whether it was run since."""
    (folder / "mine.py").write_text(TEXT)
    marker = Marker()
    marker.unlink()
    return marker
