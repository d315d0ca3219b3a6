"""The export computes what the model computes: by its documented layout written out here, and in TransformerLens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from mhsa_cli.config.schema import Config, ModelConfig, TrainConfig
from mhsa_cli.config.tasks import Shift
from mhsa_cli.core.export import Source
from mhsa_cli.core.export.transformer_lens import CONFIG, WEIGHTS, obstacles, to_transformer_lens
from mhsa_cli.core.heads.capture import capture
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import build_task
from mhsa_cli.errors import UsageError
from tests.core.reference import redraw

D, H, V, T, MAX, D_MLP = 24, 4, 17, 9, 13, 29
BLOCK = {"norm": "layernorm", "d_mlp": D_MLP}
LLAMA = {"norm": "rmsnorm", "d_mlp": D_MLP, "mlp": "swiglu", "bias": False, "positions": "rope", "n_kv_heads": 2}
CASES: dict[str, dict[str, Any]] = {
    "attention only": {"positions": "learned"},
    "three layers, sines": {"n_layers": 3},
    "gpt": BLOCK | {"positions": "learned"},
    "gpt without biases": BLOCK | {"bias": False},
    "mlp without norm": {"d_mlp": D_MLP},
    "llama": LLAMA,
    "multi-query, rope by halves": LLAMA | {"n_kv_heads": 1, "rope_layout": "half", "rope_theta": 500.0},
    "alibi": {"positions": "alibi", "norm": "rmsnorm"},
    "window": BLOCK | {"window": 3, "n_kv_heads": 2},
    "relu, wide heads that do not divide": BLOCK | {"mlp": "relu", "n_heads": 5, "d_head": 7},
    "narrow heads, shared": LLAMA | {"d_head": 2},
    "no positions, tied": {"positions": "none", "tie_embeddings": True},
}


def made(settings: dict[str, Any]) -> tuple[TransformerLM, dict[str, Tensor], dict[str, Any]]:
    """A model with wide weights, and what its export says."""
    config = ModelConfig(**{"d_model": D, "n_heads": H, "n_layers": 2, "residual": True} | settings)
    model = TransformerLM(config, vocab_size=V, max_seq_len=MAX)
    redraw(model, 3)
    if config.tie_embeddings:
        model.lm_head.weight = model.tok_emb.weight
    task = Shift(vocab_size=V, seq_len=T)
    whole = Config(task=task, model=config, train=TrainConfig())
    trained = (model.eval(), build_task(task), whole, 7)
    files = to_transformer_lens(Source("x", whole, {}, None, [], [], lambda: trained))
    assert set(files) == {WEIGHTS, CONFIG}
    return model, load(files[WEIGHTS]), json.loads(files[CONFIG])


# What TransformerLens means by its names.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * torch.sigmoid(x),
    "relu": torch.relu,
}


def rotate(x: Tensor, c: dict[str, Any]) -> Tensor:
    """Turn x (B, T, H, d) pair by pair, as complex numbers."""
    pairs = x.unflatten(-1, (-1, 2)) if c["rotary_adjacent_pairs"] else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    rate = c["rotary_base"] ** (-torch.arange(c["rotary_dim"] // 2, dtype=torch.float64) * 2 / c["rotary_dim"])
    angle = torch.outer(torch.arange(x.size(1), dtype=torch.float64), rate)[:, None]
    turned = torch.view_as_complex(pairs.double().contiguous()) * torch.polar(torch.ones_like(angle), angle)
    real = torch.view_as_real(turned).to(x.dtype)
    return (real if c["rotary_adjacent_pairs"] else real.transpose(-1, -2)).flatten(-2)


def norm(x: Tensor, w: dict[str, Tensor], name: str, c: dict[str, Any]) -> Tensor:
    if c["normalization_type"] is None:
        return x
    if c["normalization_type"] == "LN":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.pow(2).mean(-1, keepdim=True) + c["eps"]).sqrt() * w[f"{name}.w"]
    return x + w[f"{name}.b"] if c["normalization_type"] == "LN" else x


def attention(x: Tensor, w: dict[str, Tensor], c: dict[str, Any], kind: str) -> Tensor:
    """One layer's attention by its documented layout; x (B, T, D)."""
    kv, times = ("_", c["n_heads"] // c["n_key_value_heads"]) if "n_key_value_heads" in c else ("", 1)
    q = torch.einsum("btD,hDd->bthd", x, w["W_Q"]) + w["b_Q"]
    k, v = (torch.einsum("btD,hDd->bthd", x, w[f"{kv}W_{n}"]) + w[f"{kv}b_{n}"] for n in "KV")
    if c["positional_embedding_type"] == "rotary":
        q, k = rotate(q, c), rotate(k, c)
    k, v = (t.repeat_interleave(times, 2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / c["attn_scale"]
    distance = torch.arange(x.size(1))[:, None] - torch.arange(x.size(1))
    if c["positional_embedding_type"] == "alibi":
        slopes = torch.tensor([2 ** (-8 * (h + 1) / c["n_heads"]) for h in range(c["n_heads"])])
        scores = scores - slopes[:, None, None] * distance
    far = c["window_size"] if kind == "local" else MAX
    pattern = scores.masked_fill((distance < 0) | (distance >= far), -math.inf).softmax(-1)
    z = torch.einsum("bhqk,bkhd->bqhd", pattern, v)
    return torch.einsum("bqhd,hdD->bqD", z, w["W_O"]) + w["b_O"]


def forward(ids: Tensor, w: dict[str, Tensor], c: dict[str, Any]) -> Tensor:
    """A HookedTransformer by its documented layout: every part is added to the stream."""
    x = w["embed.W_E"][ids]
    if c["positional_embedding_type"] == "standard":
        x = x + w["pos_embed.W_pos"][: ids.size(1)]
    for layer in range(c["n_layers"]):
        mine = {n.removeprefix(f"blocks.{layer}."): t for n, t in w.items() if n.startswith(f"blocks.{layer}.")}
        heads = {n.removeprefix("attn."): t for n, t in mine.items()}
        kind = c["attn_types"][layer] if c.get("use_local_attn") else "global"
        x = x + attention(norm(x, mine, "ln1", c), heads, c, kind)
        if not c["attn_only"]:
            y = norm(x, mine, "ln2", c)
            inner = y @ mine["mlp.W_in"]
            if c["gated_mlp"]:
                inner = ACTIVATIONS[c["act_fn"]](y @ mine["mlp.W_gate"]) * inner + mine["mlp.b_in"]
            else:
                inner = ACTIVATIONS[c["act_fn"]](inner + mine["mlp.b_in"])
            x = x + inner @ mine["mlp.W_out"] + mine["mlp.b_out"]
    return norm(x, w, "ln_final", c) @ w["unembed.W_U"] + w["unembed.b_U"]


def tokens() -> Tensor:
    return torch.randint(0, V, (3, T), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_documented_layout_computes_our_logits(case: str) -> None:
    model, weights, config = made(CASES[case])
    ours, theirs = model(tokens()), forward(tokens(), weights, config)
    assert isinstance(ours, Tensor) and ours.std() > 0.3
    assert (ours - theirs).abs().max() < 1e-5 * ours.abs().max().clamp(min=1)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_transformer_lens_computes_our_logits_and_patterns(case: str) -> None:
    library = pytest.importorskip("transformer_lens")
    try:
        kind, kind_of_config = library.HookedTransformer, library.HookedTransformerConfig
    except ImportError:  # TransformerLens 4 has taken them out
        pytest.skip("this TransformerLens has no HookedTransformer")
    model, weights, config = made(CASES[case])
    hooked = kind(kind_of_config.from_dict({**config, "dtype": weights["embed.W_E"].dtype}))
    missing, unexpected = hooked.load_state_dict(weights, strict=False)
    buffers = {name for name, _ in hooked.named_buffers()}
    assert set(missing) <= buffers and not unexpected
    logits, cache = hooked.run_with_cache(tokens())
    ours = model(tokens())
    assert isinstance(ours, Tensor)
    assert (ours - logits).abs().max() < 1e-5 * ours.abs().max().clamp(min=1)
    for layer, pattern in enumerate(capture(model, tokens())):
        assert (cache["pattern", layer] - pattern).abs().max() < 1e-5


def test_names_and_shapes() -> None:
    _, weights, config = made(CASES["llama"] | {"n_layers": 1})
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    d = D // H
    assert shapes == {
        "embed.W_E": (V, D),
        "blocks.0.ln1.w": (D,),
        "blocks.0.attn.W_Q": (H, D, d),
        "blocks.0.attn._W_K": (2, D, d),
        "blocks.0.attn._W_V": (2, D, d),
        "blocks.0.attn.W_O": (H, d, D),
        "blocks.0.attn.b_Q": (H, d),
        "blocks.0.attn._b_K": (2, d),
        "blocks.0.attn._b_V": (2, d),
        "blocks.0.attn.b_O": (D,),
        "blocks.0.ln2.w": (D,),
        "blocks.0.mlp.W_in": (D, D_MLP),
        "blocks.0.mlp.W_gate": (D, D_MLP),
        "blocks.0.mlp.W_out": (D_MLP, D),
        "blocks.0.mlp.b_in": (D_MLP,),
        "blocks.0.mlp.b_out": (D,),
        "ln_final.w": (D,),
        "unembed.W_U": (D, V),
        "unembed.b_U": (V,),
    }
    assert (config["n_ctx"], config["d_head"], config["n_key_value_heads"]) == (MAX, d, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"residual": False}, ["model.residual is false"]),
        ({"attention": "linear"}, ["model.attention is linear"]),
        ({"attention": "uniform"}, ["model.attention is uniform"]),
        (LLAMA | {"bias": True}, ["model.mlp is swiglu with model.bias"]),
        ({"positions": "alibi", "n_heads": 6}, ["alibi with 6 heads"]),
        ({"residual": False, "attention": "linear"}, ["residual", "linear"]),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_every_reason(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        made(settings)
    assert all(word in str(caught.value) for word in words) and str(caught.value).count("model.") >= len(words)
    assert obstacles(ModelConfig(residual=True)) == []
