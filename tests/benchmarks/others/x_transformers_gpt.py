"""The GPT without biases as x-transformers builds it, with its fused attention, in the lesson's loop."""

from __future__ import annotations

from importlib.metadata import version

from lesson_loop import LessonLoop
from others.turns import Batches, Pause, count, load_in_order
from torch import Tensor, nn
from x_transformers import Decoder, TransformerWrapper

from mhsa_cli.config.schema import Config

VERSION = version("x-transformers")


class XTransformers:
    """Its parameters are ours in our order, but for q, k and v, which are apart."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        c, V, T = config.model, config.task.vocab_size, config.task.seq_len
        sizes = {"dim": c.d_model, "depth": c.n_layers, "heads": c.n_heads, "attn_dim_head": c.d_model // c.n_heads}
        decoder = Decoder(**sizes, ff_mult=c.d_mlp // c.d_model, attn_flash=True, ff_no_bias=True)
        head = nn.Linear(c.d_model, V)
        self.model = TransformerWrapper(num_tokens=V, max_seq_len=T, attn_layers=decoder, to_logits=head)
        self.model.pos_emb.scale = 1.0  # else positions count 1 / sqrt(d_model)
        apart: dict[str, Tensor] = {}
        for name, weight in weights.items():
            weight = weight - 1 if "norm" in name else weight  # its norms keep what is to be added to 1
            parts = weight.chunk(3) if "qkv" in name else [weight]
            apart |= {f"{name}.{i}": part for i, part in enumerate(parts)}
        load_in_order(self.model, apart)
        self.parameters = count(self.model)
        self.loop = LessonLoop(config.train.batch_size, self.model, config.train.lr)

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        for inputs, targets in batches:
            pause(self.loop.step(inputs, targets))
