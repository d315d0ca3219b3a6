"""The language model: token embedding, positions, attention blocks, output map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mhsa_cli.config.custom_attention import is_file, way
from mhsa_cli.config.encoder_decoder import source_length
from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.custom import CustomAttention, CustomLayer, Sizes
from mhsa_cli.core.model.encoder_decoder import PartAttention, parts_of, positions_of
from mhsa_cli.core.model.kv_cache import KVCache, LayerCache
from mhsa_cli.core.model.layers import AnyDevice, Dropout, Embedding, LayerNorm, Linear, RMSNorm, WithTables, slotwise
from mhsa_cli.core.model.positions import POSITIONS, Positions
from mhsa_cli.core.ranges import check_size
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import LayerPart
from mhsa_cli.text import Head, quoted

NORMS: dict[str, Callable[[int, bool], nn.Module]] = {
    "none": lambda d_model, bias: nn.Identity(),
    "layernorm": LayerNorm,
    "rmsnorm": RMSNorm,
}


class MLP(nn.Module):
    """Two linear maps with a nonlinearity between them: (..., D) to (..., d_mlp) to (..., D).

    d_model, d_mlp: the widths. kind: "gelu", "relu", or "swiglu", silu of one map times another. bias: whether the
    maps have biases. dropout: probability in [0, 1) of dropping outputs in training.
    Source: Hendrycks and Gimpel 2016; Shazeer 2020.
    """

    def __init__(
        self, d_model: int, d_mlp: int, *, kind: str = "gelu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = F.relu if kind == "relu" else F.gelu
        self.up = Linear(d_model, d_mlp, bias)
        self.gate = Linear(d_model, d_mlp, bias) if kind == "swiglu" else None
        self.down = Linear(d_mlp, d_model, bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., D)."""
        stacked = self.up.weight.dim() == 3
        if self.gate is None:
            hidden = slotwise(self.activation, self.up(x), stacked)
        else:
            hidden = slotwise(F.silu, self.gate(x), stacked) * self.up(x)
        return self.dropout(self.down(hidden))


class Block(WithTables):
    """Attention, then an MLP if d_mlp > 0, each after its norm (pre-norm) and, with `residual`, added to its input.

    config: widths, heads, and which of these parts there are. max_seq_len: longest input, tokens. positions: shared by
    all blocks; None: those of the config. What they add to token vectors is added before the first block. custom:
    attention in place of the built-in one. part: that of a layer of an encoder-decoder, which updates only the
    positions of its queries; the MLP comes after cross-attention.
    """

    attn: MultiHeadSelfAttention | CustomLayer
    updates: Tensor | None

    def __init__(
        self,
        config: ModelConfig,
        max_seq_len: int,
        positions: Positions | None = None,
        custom: CustomAttention | None = None,
        part: LayerPart | None = None,
    ) -> None:
        super().__init__()
        c, d_mlp = config, 0 if part is not None and part.causal else config.d_mlp
        self.residual, self.part, self.max_seq_len = c.residual, part, max_seq_len
        self.register_buffer("updates", None, persistent=False)  # (max_seq_len, 1) boolean; None: all positions
        self.register_tables()
        self.attn_norm = NORMS[c.norm](c.d_model, c.bias)
        if custom is not None:
            self.attn = CustomLayer(custom, Sizes(c.d_model, c.n_heads, max_seq_len, c.dropout, c.bias))
        else:
            sizes: dict[str, Any] = {
                "n_kv_heads": c.n_kv_heads,
                "d_head": c.d_head,
                "bias": c.bias,
                "dropout": c.dropout,
            }
            sizes |= {"kind": c.attention, "positions": positions or POSITIONS[c.positions](c, max_seq_len)}
            if part is not None:
                self.attn = PartAttention(c.d_model, c.n_heads, max_seq_len, part=part, **sizes)
            else:
                self.attn = MultiHeadSelfAttention(
                    c.d_model, c.n_heads, max_seq_len, window=c.window, causal=c.causal, **sizes
                )
        self.mlp_norm = NORMS[c.norm](c.d_model, c.bias) if d_mlp else None
        self.mlp = MLP(c.d_model, d_mlp, kind=c.mlp, bias=c.bias, dropout=c.dropout) if d_mlp else None

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        """Compute which positions a layer of an encoder-decoder updates."""
        if self.part is None:
            return {}
        first, end = self.part.queries
        place = torch.arange(self.max_seq_len, device=device).unsqueeze(1)
        return {"updates": (place >= first) & (place < end)}

    @property
    def inner(self) -> MultiHeadSelfAttention:
        """The built-in attention. Raises: UsageError if it is custom."""
        if isinstance(self.attn, CustomLayer):
            name = self.attn.attention.name
            raise UsageError(
                f"{name} is custom attention, whose parts are unknown", f"mhsa check {quoted(name)} grades it"
            )
        return self.attn

    def forward(
        self, x: Tensor, pos: Tensor | None = None, return_weights: bool = False, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output (..., T, D) for x (..., T, D) and, with `return_weights`, the weights (..., H, T, Tk)."""
        y = self.attn(self.attn_norm(x), return_weights=return_weights, pos=pos, cache=cache)
        y, weights = y if return_weights else (y, None)
        return self.after_attention(x, y), weights

    def after_attention(self, x: Tensor, y: Tensor, whole: bool = True) -> Tensor:
        """Compute the block's output (..., D) from its input x and attention's output y, both (..., D).

        `whole`: they are of all positions (..., T, D), else only of some that the block updates.
        """
        x = self.onto(x, y, whole)
        if self.mlp is not None and self.mlp_norm is not None:
            x = self.onto(x, self.mlp(self.mlp_norm(x)), whole)
        return x

    def onto(self, x: Tensor, y: Tensor, whole: bool = True) -> Tensor:
        """Add y to x, or put it in its place without residuals, where the block updates x."""
        new = x + y if self.residual else y
        return torch.where(self.updates[: x.size(-2)], new, x) if whole and self.updates is not None else new


class TransformerLM(WithTables):
    """A transformer over token ids, decoder-only by default: embedding, positions, blocks, norm, output map.

    Shapes: ids (B, T) to logits (B, T, V); in a stack (M, B, T) to (M, B, T, V).
    config: the `model` section of a config: widths, heads, layers and forms; with encoder_layers an encoder-decoder on
    rows [source | separator | answer]: `source` is the length of the first, `parts` those of its layers. vocab_size:
    number of ids V. max_seq_len: longest input, tokens. custom: attention from a file, in place of the built-in one.
    Raises: ValueError for sizes below 1, ids outside the vocabulary, more tokens than max_seq_len, or a cache that is
    not of this model.
    """

    pos: Tensor
    blocks: Sequence[Block]

    def __init__(
        self, config: ModelConfig, *, vocab_size: int, max_seq_len: int, custom: CustomAttention | None = None
    ) -> None:
        super().__init__()
        check_size("vocab_size", vocab_size)
        check_size("max_seq_len", max_seq_len)
        self.max_seq_len, self.source = max_seq_len, source_length(config.encoder_layers, max_seq_len)
        self.parts, self.init_std = parts_of(config, max_seq_len), config.init_std
        self.register_tables()
        self.tok_emb = Embedding(vocab_size, config.d_model)
        longest = max_seq_len if config.positions == "rope" else max_seq_len - self.source  # a block checks it
        self.positions = POSITIONS[config.positions](config, longest)
        self.embed_dropout = Dropout(config.dropout)
        each: Sequence[LayerPart | None] = self.parts or [None] * config.n_layers
        blocks = (Block(config, max_seq_len, self.positions, custom, part) for part in each)
        self.blocks = nn.ModuleList(blocks)  # type: ignore[assignment]  # ModuleList is not generic
        self.final_norm = NORMS[config.norm](config.d_model, config.bias)
        self.lm_head = Linear(config.d_model, vocab_size)
        if config.tie_embeddings:
            self.lm_head.weight = self.tok_emb.weight

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        """Compute the positions 0, 1, ... (max_seq_len,); behind the source of an encoder-decoder again from 0."""
        return {"pos": positions_of(self.source, self.max_seq_len).to(device)}

    @property
    def attention(self) -> list[MultiHeadSelfAttention]:
        """The built-in attention of every layer. Raises: UsageError if it is custom."""
        return [block.inner for block in self.blocks]

    @property
    def mixers(self) -> list[MultiHeadSelfAttention | CustomLayer]:
        """The attention of every layer, built-in or custom, with n_heads, kind and visible."""
        return [block.attn for block in self.blocks]

    @property
    def custom(self) -> CustomLayer | None:
        """The first layer's attention if it is custom; all layers have the same kind."""
        first = self.mixers[0]
        return first if isinstance(first, CustomLayer) else None

    @property
    def heads(self) -> list[Head]:
        """Every head's address (layer, head), first layer first."""
        return [Head(layer, head) for layer, block in enumerate(self.mixers) for head in range(block.n_heads)]

    def embed(self, ids: Tensor, pos: Tensor) -> Tensor:
        """Embed ids (..., T) at positions pos: (..., T, D)."""
        return self.embed_dropout(self.positions.embed(self.tok_emb(ids), pos))

    def forward(
        self, ids: Tensor, *, return_weights: bool = False, cache: KVCache | None = None
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Compute the logits (..., T, V) of ids (..., T); with `return_weights` also each layer's (..., H, T, Tk).

        cache: keys and values of the tokens before, which ids continue; it is extended. Tk counts both.
        """
        if ids.dim() < 2:
            raise ValueError(f"ids must be (B, T), got {tuple(ids.shape)}")
        if self.source and (cache is not None or ids.size(-1) <= self.source):
            wanted = f"an encoder-decoder takes rows of more than {self.source} tokens, its source, without a cache"
            raise ValueError(f"{wanted}, got {tuple(ids.shape)}")
        if cache is not None and len(cache) != len(self.blocks):
            raise ValueError(f"the cache is for {len(cache)} layers, the model has {len(self.blocks)}")
        past, T = 0 if cache is None else cache.length, ids.size(-1)
        if past + T > self.max_seq_len:
            cached = f" after {past} cached tokens" if past else ""
            raise ValueError(f"input length T={T}{cached} exceeds max_seq_len={self.max_seq_len}")
        pos = self.pos[past : past + T]
        x = self.embed(ids, pos)  # (..., T, D)
        collected = []
        for layer, block in enumerate(self.blocks):
            x, weights = block(x, pos, return_weights, None if cache is None else cache[layer])
            if weights is not None:
                collected.append(weights)
        logits = self.lm_head(self.final_norm(x))  # (..., T, V)
        return (logits, collected) if return_weights else logits


@contextmanager
def eval_mode(model: TransformerLM) -> Iterator[None]:
    """Set eval mode within the context, and restore every module's mode afterwards."""
    if not model.training:
        yield
        return
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def build(
    config: ModelConfig,
    *,
    vocab_size: int,
    max_seq_len: int,
    generator: Generator,
    custom: CustomAttention | None = None,
) -> TransformerLM:
    """Build one model and draw its weights from `generator` alone, in the order of its modules.

    The weights do not depend on n_heads, unless d_head is set. `custom` is the loaded block of a config that names a
    file: a config alone runs no code. Raises: UsageError without it, or if its test fails.
    """
    if is_file(config.attention) and custom is None:
        message = f"model.attention is {config.attention}, which is not imported by itself"
        raise UsageError(message, way(config.attention))
    with torch.random.fork_rng(devices=[]):  # the constructors draw from torch's generator too
        model = TransformerLM(config, vocab_size=vocab_size, max_seq_len=max_seq_len, custom=custom)
    draw_weights(model, generator)
    return model


def draw_weights(model: TransformerLM, generator: Generator) -> None:
    """Draw all weights from `generator`, in the order of the modules; norms become ones and zeros.

    Custom attention draws its own, whatever the model's init_std.
    """
    for module in model.modules():
        if isinstance(module, Linear | Embedding):
            module.reset_parameters(generator, model.init_std)
        elif isinstance(module, CustomLayer):
            module.reset_parameters(generator)
        elif isinstance(module, LayerNorm | RMSNorm):
            nn.init.ones_(module.weight)
            if isinstance(module, LayerNorm) and module.bias is not None:
                nn.init.zeros_(module.bias)
    if model.lm_head.weight is model.tok_emb.weight:
        model.tok_emb.reset_parameters(generator, model.init_std)  # lm_head drew the shared table again
