"""`model.init_std`: what is drawn, in which order, and that untrained heads are drawn alike."""

from __future__ import annotations

import copy

import pytest
import torch

from mhsa_cli.config.load import parse
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.transformer import TransformerLM, draw_weights
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.training.lockstep import build_model

TINY = """\
task: {name: copy, vocab_size: 51, seq_len: 14}
model: {d_model: 36, n_heads: 3, n_layers: 2, d_mlp: 40, mlp: swiglu, residual: true, norm: layernorm,
        positions: learned}
train: {seed: 5}
"""


def made(*changes: str) -> tuple[Config, TransformerLM]:
    config = parse(TINY.encode(), "c.yaml", changes)
    return config, build_model(config, build_task(config.task))


@pytest.mark.parametrize("tied", ["false", "true"])
def test_every_weight_is_drawn_with_the_same_spread_and_biases_are_zero(tied: str) -> None:
    config, model = made("init_std=0.3", f"tie_embeddings={tied}")
    generator, tensors = stream_generator(5, "init", 0), dict(model.named_parameters())
    expected = {}
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is not None and weight.dim() == 2:
            expected[f"{name}.weight"] = torch.empty(weight.shape).normal_(std=0.3, generator=generator)
    if tied == "true":  # it is drawn where it stands first, again as the output map, and once more as the embedding
        expected["tok_emb.weight"] = torch.empty(51, 36).normal_(std=0.3, generator=generator)
    matrices = {name for name, tensor in tensors.items() if tensor.dim() == 2}
    assert len(matrices) == (13 if tied == "false" else 12) and matrices <= expected.keys()
    for name in matrices:
        assert torch.equal(tensors[name], expected[name]), name
    for name, tensor in tensors.items():
        if name not in matrices:
            assert torch.equal(tensor, torch.full_like(tensor, float("norm.weight" in name))), name
    pooled = torch.cat([tensors[name].flatten() for name in matrices])
    assert float(pooled.detach().std()) == pytest.approx(0.3, rel=0.02)
    assert config.model.init_std == 0.3


def test_the_default_is_as_before() -> None:
    _, model = made()
    _, spread = made("init_std=0.02")
    assert torch.equal(made("init_std=null")[1].lm_head.weight, model.lm_head.weight)
    assert 0.9 / 6 < float(model.lm_head.weight.detach().abs().max()) <= 1 / 6  # uniform in +-1/6
    assert bool((model.lm_head.bias != 0).all()) and bool((spread.lm_head.bias == 0).all())
    assert torch.equal(model.tok_emb.weight, spread.tok_emb.weight)  # the first one drawn, from N(0, 0.02^2) already


def test_untrained_heads_are_drawn_alike() -> None:
    _, model = made("init_std=0.3")
    drawn = copy.deepcopy(model)
    draw_weights(drawn, stream_generator(5, "init", 0))
    for one, other in zip(drawn.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
