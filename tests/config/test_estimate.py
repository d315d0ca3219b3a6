from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from mhsa_cli.config.estimate import estimate, parameters
from mhsa_cli.config.parameters import parameter_shapes
from mhsa_cli.config.schema import Config

Load = Callable[..., Config]
Complain = Callable[..., str]


def test_the_lesson_has_8384_parameters() -> None:
    config = Config()
    assert parameters(config.task, config.model) == 8384


def test_a_text_has_no_count_before_its_file_is_read(load: Load) -> None:
    config = load("task: {name: text, path: a.txt}")
    assert parameters(config.task, config.model) is None


HEADS: list[dict[str, object]] = [
    {"n_heads": 2},
    {"n_heads": 6, "d_head": 3, "n_kv_heads": 2},
    {"n_heads": 2, "encoder_layers": 2, "max_seq_len": None},
]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("norm", ["none", "layernorm", "rmsnorm"])
@pytest.mark.parametrize("mlp", [{"d_mlp": 0}, {"d_mlp": 7, "mlp": "relu"}, {"d_mlp": 7, "mlp": "swiglu"}])
@pytest.mark.parametrize("heads", HEADS)
def test_names_and_shapes_are_the_models_own(
    positions: str, norm: str, mlp: dict[str, object], heads: dict[str, object]
) -> None:
    torch = pytest.importorskip("torch")
    from mhsa_cli.core.model.transformer import build

    for bias, tied in itertools.product((True, False), repeat=2):
        model = {"d_model": 10, "n_layers": 3, "max_seq_len": 13, **heads, **mlp, "positions": positions, "norm": norm,
                 "bias": bias, "tie_embeddings": tied}  # fmt: skip
        config = Config.model_validate({"task": {"name": "copy", "vocab_size": 17, "seq_len": 12}, "model": model})
        longest = config.model.max_seq_len or 12
        built = build(config.model, vocab_size=17, max_seq_len=longest, generator=torch.Generator().manual_seed(3))
        shapes = {name: tuple(weight.shape) for name, weight in built.named_parameters()}
        assert parameter_shapes(config.model, 17, 12) == shapes, model
        assert parameters(config.task, config.model) == sum(weight.numel() for weight in built.parameters()), model


def test_the_memory_of_the_maps_by_hand(load: Load) -> None:
    config = load("task: {seq_len: 10}\nmodel: {n_layers: 3, n_heads: 2}\ntrain: {batch_size: 7}")
    size = estimate(config.task, config.model, config.train)
    assert size.maps == 2 * 4 * 3 * 2 * 7 * 10 * 10
    assert size.weights == 16 * size.parameters
    assert size.problem() is None


def test_the_masks_reach_as_far_as_the_positions(load: Load, complain: Complain) -> None:
    """Rows of four tokens took 20 GiB for a model that could read 65,536."""
    for text, longest in (("", 12), ("model: {max_seq_len: 300, n_layers: 7}", 300)):
        config = load(text)
        assert estimate(config.task, config.model, config.train).masks == 5 * config.model.n_layers * longest**2
    told = complain("task: {seq_len: 4}\nmodel: {n_layers: 2, max_seq_len: 65536}")
    assert "c.yaml:2:35: " in told and "`model.max_seq_len`" in told
    load("task: {seq_len: 4}\nmodel: {n_layers: 2, max_seq_len: 32768}")
