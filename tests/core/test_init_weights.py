"""Initial weights from files: what is exported comes back bit for bit, and what does not fit is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from mhsa_cli.config.schema import Config, ModelConfig
from mhsa_cli.config.tasks import Shift
from mhsa_cli.core.export.transformer_lens import state_dict
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.init_weights import fitting, load_initial, read_tensors
from mhsa_cli.errors import UsageError
from mhsa_cli.records.initial import MappedTensor
from tests.core.reference import redraw

D, H, V, T, MAX, D_MLP = 24, 4, 17, 9, 13, 29
GPT = {"norm": "layernorm", "d_mlp": D_MLP, "positions": "learned"}
LLAMA = {"norm": "rmsnorm", "d_mlp": D_MLP, "mlp": "swiglu", "bias": False, "positions": "rope", "n_kv_heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "attention": {},
    "gpt": GPT,
    "gpt without biases": GPT | {"bias": False},
    "llama": LLAMA,
    "relu, wide heads": GPT | {"mlp": "relu", "n_heads": 5, "d_head": 7},
    "tied": GPT | {"tie_embeddings": True},
    "alibi": {"positions": "alibi", "norm": "rmsnorm"},
}
Tensors = dict[str, Tensor]


def config(settings: dict[str, Any]) -> Config:
    sizes = {"d_model": D, "n_heads": H, "n_layers": 2, "residual": True, "max_seq_len": MAX}
    return Config(task=Shift(vocab_size=V, seq_len=T), model=ModelConfig(**sizes | settings))


def model_of(settings: dict[str, Any], seed: int) -> TransformerLM:
    whole = config(settings)
    model = TransformerLM(whole.model, vocab_size=V, max_seq_len=whole.max_seq_len)
    redraw(model, seed)
    if settings.get("tie_embeddings"):
        model.lm_head.weight = model.tok_emb.weight
    return model


def ours(model: TransformerLM) -> Tensors:
    return {name: weight.detach() for name, weight in model.named_parameters()}


def hooked(model: TransformerLM) -> Tensors:
    masks = {"blocks.0.attn.mask": torch.ones(MAX, MAX, dtype=torch.bool), "blocks.0.attn.IGNORE": torch.tensor(-1e5)}
    return {name: weight.detach() for name, weight in state_dict(model).items()} | masks


def apart(names: str, container: str) -> Callable[[TransformerLM], Tensors]:
    """Split the fused projection into three, all four under other names."""

    def written(model: TransformerLM) -> Tensors:
        found = ours(model)
        q, k, v, out = names.split()
        for name in [name for name in found if ".attn." in name]:
            tensor, leaf, layer = found.pop(name), name.rpartition(".")[2], name.split(".")[1]
            at = f"{container}.{layer}"
            if "qkv_proj" in name:
                parts = zip((q, k, v), tensor.split(model.attention[0].widths), strict=True)
                found |= {f"{at}.{part}.{leaf}": t for part, t in parts}
            else:
                found[f"{at}.{out}.{leaf}"] = tensor
        return found

    return written


GPT2 = {
    "tok_emb": "wte", "positions.pos_emb": "wpe", "final_norm": "ln_f", "attn_norm": "ln_1", "mlp_norm": "ln_2",
    "attn.qkv_proj": "attn.c_attn", "attn.out_proj": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj",
    "blocks": "h",
}  # fmt: skip


def gpt2(prefix: str, turned: bool) -> Callable[[TransformerLM], Tensors]:
    """Write nanoGPT's names, or those of transformers, whose weights are (d_in, d_out)."""

    def written(model: TransformerLM) -> Tensors:
        found = {}
        for name, tensor in ours(model).items():
            inner = name
            for mine, theirs in GPT2.items():
                inner = re.sub(rf"(^|\.){re.escape(mine)}(?=\.)", rf"\1{theirs}", inner)
            conv = turned and re.search(r"c_\w+\.weight", inner)
            if name != "lm_head.bias":
                found[inner if name.startswith("lm_head") else prefix + inner] = tensor.T if conv else tensor
        return found | {f"{prefix}h.0.attn.bias": torch.ones(1, 1, MAX, MAX)}

    return written


LAYOUTS: dict[str, Callable[[TransformerLM], Tensors]] = {
    "ours": ours,
    "TransformerLens": hooked,
    "W_Q W_K W_V W_O": apart("attn.W_Q attn.W_K attn.W_V attn.W_O", "blocks"),
    "transformers": apart("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj", "model.layers"),
    "nanoGPT": gpt2("transformer.", turned=False),
    "GPT-2": gpt2("", turned=True),
    "nanoGPT compiled": gpt2("_orig_mod.transformer.", turned=False),
}


def begun(tensors: Tensors, settings: dict[str, Any], seed: int = 9) -> tuple[TransformerLM, list[MappedTensor]]:
    model = model_of(settings, seed)
    found = read_tensors(save({name: t.contiguous().clone() for name, t in tensors.items()}), "a.safetensors")
    return model, load_initial(model, config(settings), found, "a.safetensors")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", MODELS)
@torch.no_grad()
def test_weights_of_every_layout_come_back_bit_for_bit(case: str, layout: str) -> None:
    model = model_of(MODELS[case], 3)
    if "GPT" in layout:
        model.lm_head.bias.zero_()  # type: ignore[union-attr]  # theirs has none
    tensors = LAYOUTS[layout](model)
    found, mapped = begun(tensors, MODELS[case])
    assert weights_sha256(found) == weights_sha256(model)
    assert sorted(name for one in mapped for name in one.sources) == sorted(tensors)
    assert {one.target for one in mapped} - {""} == set(ours(model))


def test_the_mapping_says_what_was_done() -> None:
    def told(layout: str) -> dict[str, str]:
        _, mapped = begun(LAYOUTS[layout](model_of(GPT, 3)), GPT)
        return {" + ".join(one.sources): one.done for one in mapped}

    found = told("GPT-2")
    assert found["h.1.attn.c_attn.weight"] == found["h.1.attn.c_proj.weight"] == "transposed"
    assert (found["wte.weight"], found["h.0.attn.bias"]) == ("", "not a weight")
    three = "blocks.0.attn.W_Q + blocks.0.attn.W_K + blocks.0.attn.W_V"
    assert told("TransformerLens")[three] == "heads joined, transposed, q, k, v fused"
    assert set(told("ours").values()) == {""}
    half = {name: tensor.half() for name, tensor in ours(model_of(GPT, 3)).items()}
    assert {one.done for one in begun(half, GPT)[1]} == {"float16 to float32"}


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@torch.no_grad()
def test_norms_folded_into_the_maps_after_them_compute_the_same(norm: str) -> None:
    settings = GPT | {"norm": norm}
    model = model_of(settings, 3)
    folded = hooked(model)
    for after, maps in {
        "ln1": ["attn.W_Q", "attn.W_K", "attn.W_V"],
        "ln2": ["mlp.W_in"],
        "ln_final": ["unembed.W_U"],
    }.items():
        for at in [name.removesuffix(".w") for name in folded if name.endswith(f"{after}.w")]:
            scale, shift = folded.pop(f"{at}.w"), folded.pop(f"{at}.b", None)
            for name in (f"{at.removesuffix(after)}{name}" for name in maps):
                bias = name.replace("W_", "b_")
                if shift is not None:
                    folded[bias] = folded[bias] + torch.einsum("D,...Do->...o", shift, folded[name])
                folded[name] = scale.unsqueeze(-1) * folded[name]
    found, _ = begun(folded, settings)
    ids = torch.randint(V, (3, T), generator=torch.Generator().manual_seed(1))
    assert torch.allclose(found(ids), model(ids), atol=1e-4) and weights_sha256(found) != weights_sha256(model)


def complaint(tensors: Tensors, settings: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        begun(tensors, settings)
    assert caught.value.code == "init"
    return caught.value.message, str(caught.value.hint)


def test_what_does_not_fit_is_named_with_the_settings_that_would() -> None:
    tensors = ours(model_of(GPT | {"n_layers": 3}, 3))
    del tensors["blocks.0.mlp.up.bias"]
    tensors["blocks.0.attn.qkv_proj.weight"] = tensors["blocks.0.attn.qkv_proj.weight"].T.contiguous()
    tensors["stray"] = torch.ones(2)
    tensors["lm_head.bias"][3] = torch.nan
    message, hint = complaint(tensors, GPT)
    for line in (
        "missing: blocks.0.mlp.up.bias (29,)",
        "blocks.0.attn.qkv_proj.weight for blocks.0.attn.qkv_proj.weight: found (24, 72), wanted (72, 24)",
        "unexpected: stray (2,)",
        "unexpected: blocks.2.",
        "lm_head.bias: found NaN",
    ):
        assert line in message, line
    assert "model.n_layers=3" in hint and "d_model" not in hint


# What a file is made by, what the config says, and what the hint has to say.
OTHERS = [
    ("gpt", {"d_mlp": 31}, {"model.d_mlp": D_MLP}),
    ("gpt", {"d_model": 48}, {"model.d_model": D}),
    ("gpt", {"norm": "none"}, {"model.norm": "layernorm"}),
    ("gpt", {"positions": "sinusoidal"}, {"model.positions": "learned"}),
    ("gpt", {"max_seq_len": 11}, {"model.max_seq_len": MAX}),
    ("gpt", {"bias": False}, {"model.bias": True}),
    ("gpt without biases", {"bias": True}, {"model.bias": False}),
    ("gpt", {"tie_embeddings": True}, {"model.tie_embeddings": False}),
    ("tied", {"tie_embeddings": False}, {"model.tie_embeddings": True}),
    ("relu, wide heads", {"d_head": 6}, {"model.d_head": 7}),
    ("llama", {"n_kv_heads": 4}, {"model.n_kv_heads": 2}),
    ("llama", {"mlp": "gelu"}, {"model.mlp": "swiglu"}),
]


@pytest.mark.parametrize("layout", ["W_Q W_K W_V W_O", "ours"])
@pytest.mark.parametrize(("case", "change", "fit"), OTHERS)
def test_the_settings_of_a_file_are_told(case: str, change: dict[str, Any], fit: dict[str, Any], layout: str) -> None:
    if case == "llama" and "n_kv_heads" in change and layout == "ours":
        pytest.skip("one fused map does not tell the number of its heads")
    tensors, settings = LAYOUTS[layout](model_of(MODELS[case], 3)), MODELS[case] | change
    complaint(tensors, settings)
    told = fitting(config(settings), tensors)
    assert told == fit
    right = settings | {key.removeprefix("model."): value for key, value in told.items()}
    begun(tensors, right)


def test_transformer_lens_tells_its_heads() -> None:
    tensors = hooked(model_of(MODELS["relu, wide heads"], 3))
    told = fitting(config(MODELS["relu, wide heads"] | {"n_heads": 4, "d_head": None}), tensors)
    assert told == {"model.n_heads": 5, "model.d_head": 7}


def test_another_number_of_heads_reads_the_same_fused_weights() -> None:
    tensors = ours(model_of(GPT, 3))
    assert weights_sha256(begun(tensors, GPT | {"n_heads": 8})[0]) == weights_sha256(begun(tensors, GPT)[0])


def test_a_layout_that_no_shape_tells_is_refused() -> None:
    square = GPT | {"d_mlp": 3 * D, "n_heads": 4, "d_head": 2}  # c_attn is (24, 24)
    begun(LAYOUTS["GPT-2"](model_of(square, 3)), square)  # c_fc tells
    square |= {"d_mlp": D}
    message, _ = complaint(LAYOUTS["GPT-2"](model_of(square, 3)), square)
    assert "(d_out, d_in)" in message


def test_a_file_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        read_tensors(b"\x80\x04 a pickle", "a.bin")
    assert caught.value.code == "init"
    assert load(save({"a": torch.ones(1)}))["a"] == read_tensors(save({"a": torch.ones(1)}), "")["a"]
