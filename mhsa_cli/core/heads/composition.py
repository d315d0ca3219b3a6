"""Composition: how strongly a later head reads what an earlier one writes, and what random directions give.

The terms are those of Elhage et al. 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.core.heads.stream import output_maps
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.records.circuits import Composition
from mhsa_cli.records.claims import LEVEL
from mhsa_cli.text import Head

DRAWS = (99, 19)  # random rotations; the second where the first cost too much: a limit of the same level
MAX_PRODUCTS = 2**36  # multiplications of all draws: a few seconds in float64
MAX_CELLS = 2**20  # of the rotations held at once


class LowRank(NamedTuple):
    """n matrices left @ right^T (D, D), stored as factors (n, D, d); no D x D matrix is computed."""

    left: Tensor
    right: Tensor

    @property
    def t(self) -> LowRank:
        """The transposed matrices."""
        return LowRank(self.right, self.left)

    def compressed(self) -> Tensor:
        """Compute (D, n * d), side by side X with |X^T Y| = |left @ right^T @ Y| for every Y, scaled to |X| = 1.

        A QR decomposition drops a rotation, and what d exceeds D by. NaN where a matrix is zero.
        """
        X = self.right @ torch.linalg.qr(self.left)[1].transpose(-2, -1)
        return (X / X.norm(dim=(-2, -1), keepdim=True)).transpose(0, 1).flatten(1)


class Layer(NamedTuple):
    """What the heads of a layer write, (D, H * d), and read by queries, keys and values, (D, 3 * H * d); d <= D."""

    written: Tensor
    read: Tensor
    d_head: int


def factors(attn: MultiHeadSelfAttention) -> tuple[LowRank, LowRank]:
    """Return a layer's W_Q W_K^T and W_V W_O, one of each per query head; the score is x_q W_Q W_K^T x_k^T."""
    W_Q, W_K, W_V = (w.unflatten(0, (-1, attn.d_head)) for w in attn.qkv_proj.weight.split(attn.widths))
    shared = attn.n_heads // attn.n_kv_heads
    W_K, W_V = W_K.repeat_interleave(shared, 0), W_V.repeat_interleave(shared, 0)  # (H, d, D)
    columns = [w.transpose(-2, -1) for w in (W_Q, W_K, W_V, output_maps(attn))]  # (H, D, d)
    return LowRank(columns[0], columns[1]), LowRank(columns[2], columns[3])


def layers_of(model: TransformerLM) -> list[Layer]:
    """Collect what every layer's heads write and read; queries and keys are NaN without scores of their product."""
    found = []
    for attn in model.attention:
        qk, ov = factors(attn)
        by_scores = [qk.t.compressed(), qk.compressed()]
        if attn.kind != "softmax":
            by_scores = [torch.full_like(part, math.nan) for part in by_scores]
        found.append(
            Layer(ov.compressed(), torch.cat([*by_scores, ov.t.compressed()], 1), min(attn.d_head, attn.d_model))
        )
    return found


def overlaps(written: Tensor, reader: Layer) -> Tensor:
    """Compute |A B| / (|A| |B|), Frobenius norms, for every A written (..., D, H * d) and every B read: (..., 3, H, H).

    The row convention is x A B. NaN where a matrix is zero.
    """
    both = (written.transpose(-2, -1) @ reader.read).square()  # (..., H * d, 3 * H * d)
    both = both.unflatten(-1, (3, -1, reader.d_head)).unflatten(-4, (-1, reader.d_head))
    return both.sum((-4, -1)).sqrt().transpose(-3, -2)


def n_pairs(model: TransformerLM) -> int:
    """Count the pairs of an earlier and a later head."""
    layers = len(model.attention)
    return layers * (layers - 1) // 2 * model.attention[0].n_heads ** 2


@torch.no_grad()
def compositions(model: TransformerLM) -> Iterator[Composition]:
    """Compute the Q-, K- and V-composition of every pair of heads, minus that of random directions, 1 / sqrt(D).

    Q and K are NaN where attention is no softmax of their product. Pairs with a zero matrix are omitted.
    """
    layers, chance = layers_of(model), random_directions(model)
    for late, reader in enumerate(layers):
        by_scores = model.attention[late].kind == "softmax"
        for early in range(late):
            found = overlaps(layers[early].written, reader) - chance
            for w, per_reader in enumerate(found.permute(1, 2, 0).tolist()):
                for r, (queries, keys, values) in enumerate(per_reader):
                    if math.isfinite(values) and (not by_scores or math.isfinite(queries + keys)):
                        yield Composition(Head(early, w), Head(late, r), queries, keys, values)


def random_directions(model: TransformerLM) -> float:
    """Return the root mean square over rotations R of |A R B| / (|A| |B|), the same for all A and B (D, D)."""
    return 1 / math.sqrt(model.attention[0].d_model)


@torch.no_grad()
def composition_limit(model: TransformerLM, generator: Generator) -> float | None:
    """Compute the score that the largest of all pairs and ways exceeds in 5% of models with random directions.

    These models have this one's matrices, and a random rotation between what is written and what is read: it keeps all
    singular values, since a few large ones make large scores likelier. None where the model is too large.
    """
    layers, D = layers_of(model), model.attention[0].d_model
    draws = affordable_draws(2 * D**3 + 3 * n_pairs(model) * D * layers[0].d_head ** 2)
    largest: list[float] = []
    for rotation in rotations(D, draws, generator):
        written = [rotation @ layer.written for layer in layers]
        pairs = [overlaps(written[early], reader) for late, reader in enumerate(layers) for early in range(late)]
        largest += torch.stack([pair.nan_to_num(0.0).amax((-3, -2, -1)) for pair in pairs]).amax(0).tolist()
    limit = rarely_exceeded(largest, LEVEL)
    return None if limit is None else limit - random_directions(model)


def rarely_exceeded(drawn: Sequence[float], level: float) -> float | None:
    """Select the value that one more draw exceeds with chance `level`, else the largest; None of nothing."""
    rank = min(math.ceil((1 - level) * (len(drawn) + 1) - 1e-9), len(drawn))
    return sorted(drawn)[rank - 1] if drawn else None


def affordable_draws(products: int) -> int:
    """Return the number of random rotations to draw where each costs so many multiplications; 0 if too many."""
    return next((draws for draws in DRAWS if draws * products <= MAX_PRODUCTS), 0)


def rotations(size: int, n: int, generator: Generator) -> Iterator[Tensor]:
    """Draw n orthogonal matrices uniformly, in blocks (m, size, size)."""
    at_once = max(1, MAX_CELLS // size**2)
    for first in range(0, n, at_once):
        drawn = torch.randn(min(at_once, n - first), size, size, dtype=torch.float64, generator=generator)
        Q, R = torch.linalg.qr(drawn)
        yield Q * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # without the signs, Q is not uniform
