"""Switches that do not go together: both are named, with the way out."""

from __future__ import annotations

import pytest

from mhsa_cli.config.load import ConfigError, load_config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["d_model=15", "n_heads=3", "positions=rope"], ["`model.d_model` (15) / `model.n_heads` (3) is odd", "even"]),
        (["n_heads=8", "n_kv_heads=3"], ["`model.n_heads` (8)", "`model.n_kv_heads` (3)", "1, 2, 4, 8"]),
        (["attention=linear", "window=5"], ["`model.window` (5)", "`model.attention` (linear)"]),
        (["attention=uniform", "window=5"], ["`model.window` (5)", "`model.attention` (uniform)"]),
        (["attention=linear", "positions=alibi"], ["alibi", "positions: rope"]),
        (["window=0"], ["`model.window`"]),
        (["rope_theta=1"], ["`model.rope_theta`"]),
        (["rope_layout=pairs"], ["`model.rope_layout`", "interleaved", "half"]),
        (["n_kv_heads=0"], ["`model.n_kv_heads`"]),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_way_out(settings: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, settings)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.exit_code == 2


def test_what_goes_together_is_taken() -> None:
    config = load_config(None, ["positions=rope", "n_kv_heads=1", "window=3", "norm=rmsnorm", "mlp=swiglu", "d_mlp=5"])
    assert (config.model.n_kv_heads, config.model.window, config.model.mlp) == (1, 3, "swiglu")
