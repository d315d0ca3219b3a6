"""Positional schemes. Each acts at one of three moments; a moment that a scheme does not use does nothing.

`embed` adds to the token vectors, `rotate` turns queries and keys, `bias` is added to the scores. Positions are always
passed in, so that a sequence may start anywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.core.layers import Embedding


class Positions(nn.Module):
    """No positional information at all: every moment does nothing. The other schemes override one of them."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Add position vectors to x (..., T, D) at positions pos (T,)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys (..., H, T, d) by their positions (T,)."""
        return q, k

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Give what is added to the scores, (H, Tq, Tk), or None."""
        return None


class SinusoidalPositions(Positions):
    """Fixed sines and cosines of geometrically spaced wavelengths. Source: Vaswani et al. 2017."""

    table: Tensor

    def __init__(self, max_seq_len: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_seq_len, d_model), persistent=False)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table[pos]


class LearnedPositions(Positions):
    """One trained vector per position up to max_seq_len."""

    def __init__(self, max_seq_len: int, d_model: int) -> None:
        super().__init__()
        self.pos_emb = Embedding(max_seq_len, d_model)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        table = self.pos_emb.weight  # (max, D), in a stack (M, max, D)
        rows = table[..., pos, :]  # (T, D) or (M, T, D)
        return x + (rows if table.dim() == 2 else rows.unsqueeze(1))


def sinusoidal_table(max_seq_len: int, d_model: int) -> Tensor:
    """Tabulate sin(p / 10000^(2i/D)) in even columns and the cosine in odd ones: (max_seq_len, D)."""
    position = torch.arange(max_seq_len, dtype=torch.float32).unsqueeze(1)
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float32) * (-math.log(10000.0) / d_model))
    table = torch.zeros(max_seq_len, d_model)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: d_model // 2])
    return table


def no_positions(max_seq_len: int, d_model: int) -> Positions:
    """Build the scheme that tells the model nothing about order."""
    return Positions()


POSITIONS = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions, "none": no_positions}
