"""A file as somebody would write it: attention blocks for `model.attention`, right ones and ones that go wrong."""

from __future__ import annotations

from pathlib import Path

IMPORTED = "IMPORTED"  # a file beside it that is written whenever it is run

TEXT = '''\
import math
from pathlib import Path

import torch
from torch import nn

Path("IMPORTED").write_text("yes")


class Mine(nn.Module):
    """Right, with dropout of its own; it gives its weights."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(0.1)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = self.scale * q @ k.transpose(-2, -1) / math.sqrt(D // self.heads)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        self.kept = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.out((self.dropout(self.kept) @ v).transpose(1, 2).reshape(B, T, D)), self.kept


class Quiet(Mine):
    def forward(self, x):
        return super().forward(x)[0]


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
    """Reads rows of six tokens and no others."""

    def forward(self, x):
        assert x.shape[1] == 6
        return super().forward(x)
'''


def write(folder: Path = Path()) -> Path:
    """Write the file into a folder; returns the file that shows whether it was run since."""
    (folder / "mine.py").write_text(TEXT)
    marker = folder / IMPORTED
    marker.unlink(missing_ok=True)
    return marker


def line(words: str) -> int:
    """Give the number of the first line of the file that holds these words."""
    return TEXT[: TEXT.index(words)].count("\n") + 1
