"""The layers of an encoder-decoder on rows [source | separator | answer], and the attention of each.

All layers hold the whole row. An encoder layer updates the source positions, a decoder layer the others; each sees
the keys of one part. Cross-attention is attention of the decoder's positions to the source positions, which hold the
encoder's output: the same numbers as `MultiHeadCrossAttention` with the rows of `qkv_proj` as its two maps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mhsa_cli.config.encoder_decoder import source_length
from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, causal_window
from mhsa_cli.core.model.layers import AnyDevice
from mhsa_cli.records.heads import LayerPart, LayerRole


def parts_of(config: ModelConfig, seq_len: int) -> list[LayerPart]:
    """List the part of every attention layer: encoder layers first, then decoder and cross-attention in turn."""
    source = source_length(config.encoder_layers, seq_len)
    if not source:
        return []
    encoder = LayerPart(LayerRole.ENCODER, (0, source), (0, source))
    decoder = LayerPart(LayerRole.DECODER, (source, seq_len), (source, seq_len))
    cross = LayerPart(LayerRole.CROSS, (source, seq_len), (0, source))
    return [encoder] * config.encoder_layers + [decoder, cross] * config.n_layers


def positions_of(source: int, seq_len: int) -> Tensor:
    """Return the positions of a row, (seq_len,), counted from 0 in the source and from 0 again behind it."""
    return torch.cat([torch.arange(source), torch.arange(seq_len - source)])


class PartAttention(MultiHeadSelfAttention):
    """Attention within one part of a row, or from one to the other; other queries see no key and give zeros.

    part: the queries and keys. The other arguments are those of `MultiHeadSelfAttention`.
    """

    def __init__(self, d_model: int, n_heads: int, max_seq_len: int, *, part: LayerPart, **arguments: Any) -> None:
        self.part = part
        super().__init__(d_model, n_heads, max_seq_len, causal=False, **arguments)
        self.masked = True

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        """Compute the keys that each query sees, (max_seq_len, max_seq_len) boolean, True = may attend."""
        T, (first, last), (start, end) = self.max_seq_len, self.part.queries, self.part.keys
        mask = torch.zeros(T, T, dtype=torch.bool, device=device)
        mask[first:last, start:end] = True
        return {"visible": mask & causal_window(T, T, device=device) if self.part.causal else mask}
