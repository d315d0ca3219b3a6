"""Grade an attention block, and name its faults: of a class that is here, and of a file.

python examples/grade.py
"""

import math

import torch
from torch import nn

import mhsa_cli as mhsa


class MyAttention(nn.Module):
    """Causal multi-head attention, with a fault."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))


grade = mhsa.grade(MyAttention)  # or an instance: MyAttention(24, 4)
print(grade.verdict)
for fault in grade.faults:
    print(f"{fault.title}, {fault.place}: {fault.explanation}\n  instead: {fault.instead}")

# An object is graded in this process; a file in one of its own, with limits, and a right one is confirmed by another.
print([note.text for note in grade.notes])
assert mhsa.grade(f"{__file__}:MyAttention").faults == grade.faults
