"""Composition of heads: how strongly a later head reads what an earlier one writes, from their weights alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mhsa_cli.core.heads.logit_attribution import output_maps
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.records.heads import Composition
from mhsa_cli.text import Head

RANDOM_HEADS = 10  # writers, and as many readers: 100 random pairs
MAX_PAIRS = 2**16


class LowRank(NamedTuple):
    """n matrices left @ right^T (D, D), stored as factors (n, D, d); no D x D matrix is computed."""

    left: Tensor
    right: Tensor

    @property
    def t(self) -> LowRank:
        """The transposed matrices."""
        return LowRank(self.right, self.left)

    def compressed(self) -> Tensor:
        """Compute (n, D, d) matrices X such that |X^T Y| = |left @ right^T @ Y| for every Y: QR drops a rotation."""
        return self.right @ torch.linalg.qr(self.left)[1].transpose(-2, -1)


def overlap(writers: LowRank, readers: LowRank) -> Tensor:
    """Compute |A B| / (|A| |B|) for every writer A and reader B, Frobenius norms: (n_writers, n_readers).

    The row convention is x A B. NaN where a matrix is zero. Source: Elhage et al. 2021.
    """
    X, Y = writers.compressed(), readers.t.compressed()
    both = X.transpose(-2, -1).unsqueeze(1) @ Y  # (n, m, d, d)
    return both.norm(dim=(-2, -1)) / (X.norm(dim=(-2, -1)).unsqueeze(1) * Y.norm(dim=(-2, -1)))


def random_overlap(d_model: int, d_head: int, generator: Generator) -> float:
    """Average the overlap of random heads of the same shape with normally distributed weights."""
    draws = torch.randn(4, RANDOM_HEADS, d_model, d_head, dtype=torch.float64, generator=generator)
    return float(overlap(LowRank(draws[0], draws[1]), LowRank(draws[2], draws[3])).mean())


def factors(attn: MultiHeadSelfAttention) -> tuple[LowRank, LowRank]:
    """Return a layer's W_Q W_K^T and W_V W_O, one of each per query head; the score is x_q W_Q W_K^T x_k^T."""
    W_Q, W_K, W_V = (w.unflatten(0, (-1, attn.d_head)) for w in attn.qkv_proj.weight.split(attn.widths))
    shared = attn.n_heads // attn.n_kv_heads
    W_K, W_V = W_K.repeat_interleave(shared, 0), W_V.repeat_interleave(shared, 0)  # (H, d, D)
    columns = [w.transpose(-2, -1) for w in (W_Q, W_K, W_V, output_maps(attn))]  # (H, D, d)
    return LowRank(columns[0], columns[1]), LowRank(columns[2], columns[3])


def n_pairs(model: TransformerLM) -> int:
    """Count the pairs of an earlier and a later head."""
    layers = len(model.attention)
    return layers * (layers - 1) // 2 * model.attention[0].n_heads ** 2


@torch.no_grad()
def compositions(model: TransformerLM, seed: int) -> Iterator[Composition]:
    """Compute the Q-, K- and V-composition of every pair of heads, minus the mean of random heads.

    Q and K are NaN where attention is no softmax of their product. Pairs with a zero matrix are omitted.
    """
    attn = model.attention[0]
    baseline = random_overlap(attn.d_model, attn.d_head, stream_generator(seed, "composition", 0))
    layers = [factors(attn) for attn in model.attention]
    for late, reader in enumerate(model.attention):
        qk, ov = layers[late]
        for early in range(late):
            written = layers[early][1]
            found = torch.stack([overlap(written, read) for read in (qk, qk.t, ov)]) - baseline  # (3, H, H)
            if reader.kind != "softmax":
                found[:2] = math.nan
            for w, per_reader in enumerate(found.permute(1, 2, 0).tolist()):
                for r, (queries, keys, values) in enumerate(per_reader):
                    if math.isfinite(values) and (reader.kind != "softmax" or math.isfinite(queries + keys)):
                        yield Composition(Head(early, w), Head(late, r), queries, keys, values)
