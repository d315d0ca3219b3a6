"""The torch modules and functions that models are built of, for programs of your own."""

from __future__ import annotations

from mhsa_cli.config.schema import ModelConfig, TrainConfig
from mhsa_cli.core.model.attention import (
    MultiHeadSelfAttention,
    attention_weights,
    masked_softmax,
    scaled_dot_product_attention,
)
from mhsa_cli.core.model.cross_attention import MultiHeadCrossAttention
from mhsa_cli.core.model.layers import Embedding, LayerNorm, Linear, RMSNorm
from mhsa_cli.core.model.positions import (
    AlibiPositions,
    LearnedPositions,
    RopePositions,
    SinusoidalPositions,
    swap_rope_layout,
)
from mhsa_cli.core.model.transformer import MLP, Block, TransformerLM
from mhsa_cli.core.training.stack import learning_rate

__all__ = [
    "AlibiPositions",
    "Block",
    "Embedding",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "MLP",
    "ModelConfig",
    "MultiHeadCrossAttention",
    "MultiHeadSelfAttention",
    "RMSNorm",
    "RopePositions",
    "SinusoidalPositions",
    "TrainConfig",
    "TransformerLM",
    "attention_weights",
    "learning_rate",
    "masked_softmax",
    "scaled_dot_product_attention",
    "swap_rope_layout",
]
