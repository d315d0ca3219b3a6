"""Incompatible settings of attention: both keys are named, with the place and the way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from mhsa_cli.config.aliases import suggest
from mhsa_cli.config.fields import all_keys
from mhsa_cli.config.schema import Config

Load = Callable[..., Config]
Complain = Callable[..., str]


def test_rope_needs_pairs_of_features(complain: Complain) -> None:
    assert complain("model:\n  d_model: 36\n  n_heads: 4\n  positions: rope\n") == (
        "c.yaml:4:14: `model.positions` (rope) rotates pairs, but `model.d_model` (36) / `model.n_heads` (4) is odd\n"
        "      positions: rope\n"
        "                 ^^^^\n"
        "  nearest n_heads with an even width: 3 and 6; or use other positions"
    )
    odd = complain("model: {d_model: 15, n_heads: 3, positions: rope}")
    assert "`model.d_model` (15)" in odd and "  make d_model even; or use other positions" in odd
    own = complain("model:\n  d_model: 36\n  d_head: 9\n  positions: rope\n")
    assert "`model.d_head` (9) is odd" in own and "  make d_head even; or use other positions" in own
    # Where positions come from an override, the override is what is pointed at.
    other = complain("model: {d_model: 36}", "positions=rope")
    assert "(36) / `model.n_heads` (4) is odd" in other and "positions=rope" in other


def test_with_a_width_of_its_own_a_head_need_not_divide_the_model(load: Load, complain: Complain) -> None:
    model = load("model: {d_model: 30, n_heads: 4, d_head: 6, positions: rope}").model
    assert model.head_width == 6 and load("model: {d_model: 30, n_heads: 5}").model.head_width == 6
    assert "`model.d_head`" in complain("model: {attention: mine.py:Mine, d_head: 6}")


def test_key_and_value_heads_divide_the_heads(complain: Complain) -> None:
    assert complain("model:\n  n_heads: 8\n  n_kv_heads: 3\n") == (
        "c.yaml:3:15: `model.n_heads` (8) is not divisible by `model.n_kv_heads` (3)\n"
        "      n_kv_heads: 3\n"
        "                  ^\n"
        "  n_kv_heads that divide 8: 1, 2, 4, 8"
    )
    assert "`model.n_heads` (4) is not divisible by `model.n_kv_heads` (8)" in complain("model: {n_kv_heads: 8}")


@pytest.mark.parametrize("kind", ["linear", "uniform"])
def test_a_window_belongs_to_softmax(kind: str, complain: Complain) -> None:
    assert complain(f"model:\n  window: 5\n  attention: {kind}\n") == (
        f"c.yaml:2:11: `model.window` (5) belongs to softmax, not to `model.attention` ({kind})\n"
        "      window: 5\n"
        "              ^\n"
        "  leave the line out, or use attention: softmax"
    )


def test_alibi_has_nothing_to_add_to_in_linear_attention(complain: Complain) -> None:
    assert complain("model:\n  positions: alibi\n  attention: linear\n") == (
        "c.yaml:3:14: `model.positions` (alibi) adds to the scores of a softmax, linear attention has none\n"
        "      attention: linear\n"
        "                 ^^^^^^\n"
        "  use attention: softmax, or positions: rope"
    )


def test_all_problems_are_reported_at_once(complain: Complain) -> None:
    message = complain(
        "task: {seq_len: 29}\n"
        "model: {d_model: 20, n_kv_heads: 3, positions: rope, attention: linear, window: 2, max_seq_len: 7}\n"
    )
    for words in ("`model.n_kv_heads` (3)", "`model.positions` (rope)", "`model.window` (2)", "found 7, wanted"):
        assert words in message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("n_kv_heads: 0", "wanted a whole number from 1"),
        ("window: 0", "wanted a whole number from 1"),
        ("rope_theta: 1", "`model.rope_theta`"),
        ("rope_theta: .inf", "`model.rope_theta`"),
        ("rope_layout: halves", "did you mean `half`?"),
        ("rope_layout: null", "`model.rope_layout`"),
        ("positions: sinusoid", "did you mean `sinusoidal`?"),
        ("attention: lineal", "did you mean `linear`?"),
        ("norm: rms", "did you mean `rmsnorm`?"),
        ("mlp: swigl", "did you mean `swiglu`?"),
    ],
)
def test_values_out_of_bounds_name_the_nearest(line: str, words: str, complain: Complain) -> None:
    message = complain(f"model: {{{line}}}")
    assert message.startswith("c.yaml:1:") and words in message and "^" in message


@pytest.mark.parametrize(
    "line",
    [
        "d_model: 12, n_heads: 3, n_kv_heads: 1, positions: rope, rope_layout: half, rope_theta: 500000",
        "n_heads: 8, n_kv_heads: 2, positions: alibi, window: 3",
        "n_heads: 32, positions: learned, attention: linear, n_kv_heads: 32",
        "d_model: 15, n_heads: 3, positions: sinusoidal, attention: uniform",
        "positions: rope, attention: linear, norm: rmsnorm, d_mlp: 5, mlp: swiglu, residual: true",
        "n_kv_heads: null, window: null",
    ],
)
def test_valid_combinations_are_accepted(line: str, load: Load) -> None:
    config = load(f"model: {{{line}}}")
    for part in line.split(", "):
        key, value = part.split(": ")
        assert getattr(config.model, key) == yaml.safe_load(value)


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("num_kv_heads", "n_kv_heads"), ("n_kv_head", "n_kv_heads"), ("num_key_value_heads", "n_kv_heads"),
        ("num_query_groups", "n_kv_heads"), ("rope_base", "rope_theta"), ("rotary_base", "rope_theta"),
        ("rotary_emb_base", "rope_theta"), ("sliding_window", "window"), ("window_size", "window"),
        ("pos_encoding", "positions"), ("position_embedding_type", "positions"), ("use_rope", "positions"),
        ("rotary_interleaved", "rope_layout"), ("hidden_act", "mlp"), ("activation_function", "mlp"),
        ("norm_type", "norm"), ("attn_implementation", "attention"),
    ],
)  # fmt: skip
def test_names_of_other_projects_lead_to_ours(foreign: str, ours: str, complain: Complain) -> None:
    assert suggest(foreign, "model", all_keys()).text == f"did you mean `{ours}`?"
    assert f"did you mean `{ours}`?" in complain(f"model: {{{foreign}: 2}}")


def test_names_without_a_setting_get_advice(complain: Complain) -> None:
    assert "`model.rope_theta` is their base" in complain("model: {rope_scaling: 2}")
    assert "remove it" in complain("model: {rms_norm_eps: 1e-6}")
