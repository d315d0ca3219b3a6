"""The training loop as a lesson writes it: plain module, Adam, `.item()` every step. What ours is held against."""

from __future__ import annotations

import math
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB, SEQ_LEN, D_MODEL, N_HEADS = 64, 12, 32, 4


class LessonModel(nn.Module):
    """One attention block between an embedding and a head, with every intermediate materialised."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(VOCAB, D_MODEL)
        nn.init.normal_(self.tok_emb.weight, std=0.02)
        self.qkv_proj = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.out_proj = nn.Linear(D_MODEL, D_MODEL)
        self.lm_head = nn.Linear(D_MODEL, VOCAB)
        rate = torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        angles = torch.arange(SEQ_LEN).unsqueeze(1) * rate
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        self.register_buffer("positions", table)
        self.register_buffer("future", torch.ones(SEQ_LEN, SEQ_LEN, dtype=torch.bool).triu(1))

    def forward(self, ids: Tensor) -> Tensor:
        B, T = ids.shape
        x = self.tok_emb(ids) + self.positions[:T]
        q, k, v = (t.view(B, T, N_HEADS, -1).transpose(1, 2) for t in self.qkv_proj(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D_MODEL // N_HEADS)
        weights = F.softmax(scores.masked_fill(self.future[:T, :T], -math.inf), dim=-1)
        context = (weights @ v).transpose(1, 2).contiguous().view(B, T, D_MODEL)
        return self.lm_head(self.out_proj(context))


class LessonLoop:
    """Call it once a step; `step` is the part that trains, on rows that are given."""

    def __init__(self, batch_size: int, model: nn.Module | None = None, lr: float = 5e-3) -> None:
        torch.manual_seed(42)
        self.batch_size, self.model = batch_size, LessonModel() if model is None else model
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.generator = torch.Generator().manual_seed(42)

    def __call__(self) -> float:
        rows = torch.randint(VOCAB, (self.batch_size, 1), generator=self.generator).expand(-1, SEQ_LEN + 1)
        return self.step(rows[:, :-1], rows[:, 1:])

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        logits = self.model(inputs)
        loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    loop = LessonLoop(int(sys.argv[2]) if len(sys.argv) > 2 else 16)
    for step in range(1, int(sys.argv[1]) + 1):
        loss = loop()
        if step % 120 == 0:
            print(f"step {step} loss {loss:.4f}")
