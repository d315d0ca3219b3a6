"""The bare block in a loop as a lesson writes it: its own attention, or torch's module."""

from __future__ import annotations

import math

import torch
from lesson_loop import LessonLoop, LessonModel
from others.turns import Batches, Pause, count, load_in_order
from torch import Tensor, nn

from mhsa_cli.config.schema import Config


class Lesson:
    """The lesson's loop on given batches."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        model = self.build(config)
        load_in_order(model, weights)
        self.parameters = count(model)
        self.loop = LessonLoop(config.train.batch_size, model, config.train.lr)

    def build(self, config: Config) -> nn.Module:
        """Make the model."""
        return LessonModel()

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        for inputs, targets in batches:
            pause(self.loop.step(inputs, targets))


class WithModule(nn.Module):
    """The same model around nn.MultiheadAttention, which is not asked for its weights and so runs fused."""

    def __init__(self, vocab_size: int, seq_len: int, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.lm_head = nn.Linear(d_model, vocab_size)
        rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        angles = torch.arange(seq_len).unsqueeze(1) * rate
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.register_buffer("future", nn.Transformer.generate_square_subsequent_mask(seq_len))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok_emb(ids) + self.positions[: ids.size(1)]
        y, _ = self.attn(x, x, x, attn_mask=self.future, is_causal=True, need_weights=False)
        return self.lm_head(y)


class Module(Lesson):
    """nn.MultiheadAttention in the lesson's loop."""

    def build(self, config: Config) -> nn.Module:
        """Make the model."""
        return WithModule(config.task.vocab_size, config.task.seq_len, config.model.d_model, config.model.n_heads)
