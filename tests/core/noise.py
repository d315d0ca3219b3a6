"""A task without a pattern, and small models for the tests of circuits."""

from __future__ import annotations

import torch
from torch import Generator

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import IGNORE, Batch
from tests.core.forms import MAX, T, V
from tests.core.reference import redraw


class Noise(Task):
    """Random rows with random answers, the first `unscored` of them not scored."""

    name = "noise"

    def __init__(self, vocab_size: int = V, seq_len: int = T, unscored: int = 2) -> None:
        self.vocab_size, self.seq_len, self.unscored = vocab_size, seq_len, unscored

    def sample(self, generator: Generator, rows: int) -> Batch:
        ids = torch.randint(self.vocab_size, (2, rows, self.seq_len), generator=generator)
        ids[1, :, : self.unscored] = IGNORE
        return Batch(ids[0], ids[1])


def small(seed: int = 0, vocab_size: int = V, **settings: object) -> TransformerLM:
    """Build a model of one layer with 3 heads of width 4, with wide weights, in eval mode."""
    config = ModelConfig(**{"d_model": 12, "n_heads": 3} | settings)  # type: ignore[arg-type]
    model = TransformerLM(config, vocab_size=vocab_size, max_seq_len=MAX)
    redraw(model, seed)
    return model.eval()
