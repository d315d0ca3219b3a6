"""Names of weights in files of this and other projects: which weight of ours each is, and how its tensor becomes ours.

Sources: nanoGPT; GPT-2 and Llama as in transformers; TransformerLens; torch.nn.MultiheadAttention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

# Our parts, each with the names of its module elsewhere. A part of a layer is below `attn.` or `mlp.`, or a norm.
WHOLE = {
    "tok_emb": "tok_emb wte embed_tokens token_emb token_embedding tok_embeddings",
    "positions.pos_emb": "positions.pos_emb pos_emb wpe position_embedding pos_embedding",
    "final_norm": "final_norm ln_f ln_final norm",
    "lm_head": "lm_head unembed head",
}
LAYER = {
    "attn_norm": "attn_norm ln_1 ln1 norm1 input_layernorm",
    "mlp_norm": "mlp_norm ln_2 ln2 norm2 post_attention_layernorm",
    "attn.qkv_proj": "attn.qkv_proj attn.c_attn attn.qkv attn.in_proj",
    "attn.q": "attn.q_proj attn.W_Q attn.W_q attn.wq attn.query",
    "attn.k": "attn.k_proj attn.W_K attn.W_k attn.wk attn.key",
    "attn.v": "attn.v_proj attn.W_V attn.W_v attn.wv attn.value",
    "attn.out_proj": "attn.out_proj attn.o_proj attn.W_O attn.W_o attn.wo attn.c_proj",
    "mlp.up": "mlp.up mlp.up_proj mlp.c_fc mlp.fc1",
    "mlp.gate": "mlp.gate mlp.gate_proj",
    "mlp.down": "mlp.down mlp.down_proj mlp.c_proj mlp.fc2",
}
# Tensors without a module of their own: the part, and the weight or bias.
BARE = {
    "embed.W_E": ("tok_emb", "weight"),
    "pos_embed.W_pos": ("positions.pos_emb", "weight"),
    "unembed.W_U": ("lm_head", "weight"),
    "unembed.b_U": ("lm_head", "bias"),
    **{f"attn.{mark}W_{name}": (f"attn.{name.lower()}", "weight") for mark in ("", "_") for name in "QKV"},
    **{f"attn.{mark}b_{name}": (f"attn.{name.lower()}", "bias") for mark in ("", "_") for name in "QKV"},
    "attn.W_O": ("attn.out_proj", "weight"),
    "attn.b_O": ("attn.out_proj", "bias"),
    "attn.in_proj_weight": ("attn.qkv_proj", "weight"),
    "attn.in_proj_bias": ("attn.qkv_proj", "bias"),
    "mlp.W_in": ("mlp.up", "weight"),
    "mlp.b_in": ("mlp.up", "bias"),
    "mlp.W_gate": ("mlp.gate", "weight"),
    "mlp.W_out": ("mlp.down", "weight"),
    "mlp.b_out": ("mlp.down", "bias"),
}
LEAVES = {"weight": "weight", "w": "weight", "bias": "bias", "b": "bias"}
_ATTENTION, _MLP = ("self_attn", "self_attention", "attention", "mha"), ("ffn", "feed_forward")
_WRAPPERS = re.compile(r"^(?:(?:_orig_mod|module|transformer|model|gpt|decoder)\.)+(?=.)")
_LAYER = re.compile(r"^(?:blocks|h|layers|layer)\.(\d{1,4})\.(.+)$", re.ASCII)
_INPUT_FIRST = re.compile(r"(?:W_U|W_in|W_gate|W_out)$")  # stored (d_in, d_out)
_GPT2 = re.compile(r"(?:c_attn|c_proj|c_fc)\.weight$")  # a Linear in nanoGPT, a Conv1D (d_in, d_out) in transformers
# Tables that a model computes, which are no weights.
_BUFFERS = re.compile(
    r"\.(?:attn\.bias|masked_bias|causal_mask|mask|IGNORE|inv_freq|rotary_(?:sin|cos)|tril|slopes)$|^pos$",
    re.IGNORECASE,
)
_PARTS = [{name: part for part, names in table.items() for name in names.split()} for table in (WHOLE, LAYER)]


class Slot(NamedTuple):
    """A place for a tensor: the layer, None for the whole model, the part, and `weight` or `bias`."""

    layer: int | None
    part: str
    leaf: str

    def __str__(self) -> str:
        return f"{'' if self.layer is None else f'blocks.{self.layer}.'}{self.part}.{self.leaf}"


def is_buffer(name: str, tensor: Tensor) -> bool:
    """Whether a tensor is a table such as a mask, not a weight; nanoGPT calls its mask `attn.bias`."""
    found = _BUFFERS.search(name)
    return not tensor.is_floating_point() or (found is not None and not (name.endswith("bias") and tensor.dim() == 1))


def slot_of(name: str) -> Slot | None:
    """Find the place of a tensor by its name; None if the name is unknown."""
    rest = _WRAPPERS.sub("", name)
    match = _LAYER.match(rest)
    layer = None if match is None else int(match[1])
    rest = rest if match is None else match[2]
    first, dot, more = rest.partition(".")
    if match is not None and dot:
        rest = f"{'attn' if first in _ATTENTION else 'mlp' if first in _MLP else first}.{more}"
    if rest in BARE:
        part, leaf = BARE[rest]
        return Slot(layer, part, leaf) if (part in WHOLE) == (layer is None) else None
    module, _, last = rest.rpartition(".")
    known = _PARTS[layer is not None].get(module)
    return None if known is None or last not in LEAVES else Slot(layer, known, LEAVES[last])


def is_input_first(tensors: Mapping[str, Tensor], width: int) -> bool | None:
    """Whether the weights of GPT-2's names are (d_in, d_out), from those that map `width`; None if none tells.

    `width` is that of the stream: c_attn and c_fc have it as their input.
    """
    found = {
        tensor.size(0) == width
        for name, tensor in tensors.items()
        if _GPT2.search(name) and not name.endswith("c_proj.weight") and tensor.dim() == 2
        and (tensor.size(0) == width) != (tensor.size(1) == width)
    }  # fmt: skip
    return found.pop() if len(found) == 1 else None


def has_gpt2_names(tensors: Mapping[str, Tensor]) -> bool:
    """Whether a file has weights whose layout its names do not tell."""
    return any(_GPT2.search(name) for name in tensors)


def as_ours(name: str, slot: Slot, tensor: Tensor, input_first: bool) -> tuple[Tensor, str]:
    """Return a tensor in our layout, (d_out, d_in) with the heads side by side, and what was done; "" for nothing.

    `input_first` is what `is_input_first` says of the file.
    """
    if tensor.dim() == 3 and slot.leaf == "weight":
        if slot.part == "attn.out_proj":  # (H, d, D)
            return tensor.flatten(0, 1).T, "heads joined, transposed"
        return tensor.transpose(1, 2).flatten(0, 1), "heads joined, transposed"  # (H, D, d)
    if tensor.dim() == 2 and slot.leaf == "bias":  # (H, d)
        return tensor.flatten(), "heads joined"
    if tensor.dim() == 2 and (_INPUT_FIRST.search(name) or (input_first and _GPT2.search(name))):
        return tensor.T, "transposed"
    return tensor, ""
