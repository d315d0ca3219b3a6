"""Right attention drawn at random: another layout of weights, names, mask, scale, signature and answer each time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

HEAD = """import math

import torch
import torch.nn as nn
import torch.nn.functional as F

"""
# (queries, keys, values, output) as people call them
NAMES = (
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("W_q", "W_k", "W_v", "W_o"),
    ("query", "key", "value", "proj"),
    ("to_queries", "to_keys", "to_values", "unify_heads"),
    ("wq", "wk", "wv", "wo"),
    ("fc_q", "fc_k", "fc_v", "fc_out"),
    ("query_linear", "key_linear", "value_linear", "output_linear"),
)
FUSED = ("qkv", "c_attn", "to_qkv", "Wqkv", "qkv_proj", "in_proj")
WIDTHS = ("d_model", "embed_dim", "n_embd", "dim", "hidden_size", "emb")
COUNTS = ("n_heads", "num_heads", "heads", "n_head", "h")
LENGTHS = ("max_seq_len", "block_size", "context_length")

# How a fused layer's output becomes q, k and v (B, H, T, d), where `order` names what comes first, second and third.
SPLITS = {
    "side by side": "{order} = (t.view(B, T, H, d).transpose(1, 2) for t in self.{fused}(x).chunk(3, dim=-1))",
    "roles first": "{order} = self.{fused}(x).view(B, T, 3, H, d).permute(2, 0, 3, 1, 4)",
    "by head": "{order} = self.{fused}(x).view(B, T, H, 3 * d).transpose(1, 2).split(d, dim=-1)",
    "roles last": "{order} = self.{fused}(x).view(B, T, H, d, 3).permute(4, 0, 2, 1, 3)",
}
SCALES = {
    "root": "scores = q @ k.transpose(-2, -1) / math.sqrt(d)",
    "power": "scores = torch.einsum('bhid,bhjd->bhij', q, k) * d**-0.5",
    "query": "scores = torch.matmul(q * (1.0 / d**0.5), k.transpose(2, 3))",
    "both": "scores = (q * d**-0.25) @ (k * d**-0.25).transpose(-2, -1)",
    "size": "scores = q @ k.mT / k.size(-1) ** 0.5",
}
_TRIL = "torch.ones({n}, {n}, dtype=torch.bool{device}).tril()"
_TRIU = "torch.ones({n}, {n}, dtype=torch.bool{device}).triu(diagonal=1)"
MASKS = {
    "tril": (_TRIL, "scores = scores.masked_fill(~{mask}, float('-inf'))"),
    "triu": (_TRIU, "scores = scores.masked_fill({mask}, -1e9)"),
    "where": (_TRIL, "scores = torch.where({mask}, scores, torch.finfo(scores.dtype).min)"),
    "added": ("torch.full(({n}, {n}), -math.inf{device}).triu(1)", "scores = scores + {mask}"),
    "ones": ("torch.tril(torch.ones({n}, {n}{device}))", "scores = scores.masked_fill({mask} == 0, -torch.inf)"),
}
ARGUMENTS = {
    "allowed": "scores = scores.masked_fill(mask.logical_not(), -1e9)",
    "blocked": "scores = scores.masked_fill(mask.bool(), -1e9)",
    "zero": "scores = scores.masked_fill(mask == 0, -1e9)",
    "added": "scores = scores + mask",
}
MERGES = (
    "context.transpose(1, 2).reshape(B, T, D)",
    "context.permute(0, 2, 1, 3).contiguous().view(B, T, -1)",
    "context.transpose(1, 2).flatten(2)",
    "torch.cat(context.unbind(1), dim=-1)",
)


@dataclass(frozen=True)
class Drawn:
    """A right source, the files beside it, and the sizes to grade it with; `says` is how it was drawn."""

    source: str
    sizes: dict[str, int]
    says: str
    entry: str = "Attention"
    beside: Mapping[str, str] = field(default_factory=dict)


def draw(seed: int) -> Drawn:
    """Draw a right implementation."""
    rng = random.Random(seed)
    H, d = rng.choice((1, 2, 3, 4, 5, 6, 8)), 2 * rng.randint(1, 8)
    sizes = {"n_heads": H, "d_model": H * d, "seq_len": rng.randint(4, 12)}
    kind = rng.choice(("fused", "three", "matrices", "by head", "lists"))
    width, count = rng.choice(WIDTHS), rng.choice(COUNTS)
    bias, out_bias = rng.random() < 0.5, rng.random() < 0.5
    mask = rng.choice((*MASKS, "argument", "kernel", "none"))
    buffer = mask in MASKS and rng.random() < 0.5
    length = rng.choice(LENGTHS)
    q, k, v, out = rng.choice(NAMES)

    made, project, says = _projections(rng, kind, (q, k, v), width, bias)
    signature = [width, count] + ([f"{length}=64"] if buffer else []) + (["dropout=0.0"] if rng.random() < 0.5 else [])
    drops = "dropout=0.0" in signature
    made.append(f"self.{out} = nn.Linear({width}, {width}, bias={out_bias})")
    made += ["self.dropout = nn.Dropout(dropout)"] if drops else []
    frame = rng.choice(("plain",) * 4 + ("residual", "pre-norm", "pre-norm residual", "post-norm residual"))
    made += [f"self.norm = nn.LayerNorm({width})"] if "norm" in frame else []

    attend, more = _attend(rng, mask, buffer, length, drops)
    made += more
    returned = "y" if mask == "kernel" else rng.choice(("y", "y", "y, weights", "{'output': y, 'attn': weights}"))
    y = f"self.{out}({rng.choice(MERGES)})"
    y = f"residual + {y}" if frame.endswith("residual") else y
    y = f"self.norm({y})" if frame.startswith("post-norm") else y
    scale = "" if mask == "kernel" else rng.choice(list(SCALES))
    body = ["B, T, D = x.shape", "H, d = self.count, D // self.count"]
    body += ["residual = x"] if frame.endswith("residual") else []
    body += ["x = self.norm(x)"] if frame.startswith("pre-norm") else []
    body += [*project, *([SCALES[scale]] if scale else []), *attend, f"y = {y}", f"return {returned}"]

    lines = [
        "class Attention(nn.Module):",
        f"    def __init__(self, {', '.join(signature)}):",
        "        super().__init__()",
    ]
    lines += [f"        {line}" for line in (f"assert {width} % {count} == 0", f"self.count = {count}", *made)]
    lines += ["", f"    def forward(self, x{', mask=None' if mask == 'argument' else ''}):"]
    lines += [f"        {line}" for line in body]
    described = (
        f"seed {seed}: {says}, bias {bias} and {out_bias}, mask {mask}, scale {scale}, {frame}, {returned}, {sizes}"
    )
    return Drawn(HEAD + "\n" + "\n".join(lines) + "\n", sizes, described)


def _projections(
    rng: random.Random, kind: str, names: tuple[str, str, str], width: str, bias: bool
) -> tuple[list[str], list[str], str]:
    """Draw the projections: lines for the constructor, lines that give q, k, v (B, H, T, d), and what they are."""
    if kind == "fused":
        fused, split = rng.choice(FUSED), rng.choice(list(SPLITS))
        order = rng.choice(("q, k, v", "q, k, v", "k, q, v", "v, k, q", "k, v, q", "v, q, k", "q, v, k"))
        made = [f"self.{fused} = nn.Linear({width}, 3 * {width}, bias={bias})"]
        return made, [SPLITS[split].format(order=order, fused=fused)], f"fused {order} {split}"
    if kind == "three":
        made = [f"self.{name} = nn.Linear({width}, {width}, bias={bias})" for name in names]
        split = rng.choice((".view(B, T, H, d).transpose(1, 2)", ".unflatten(-1, (H, d)).permute(0, 2, 1, 3)"))
        return made, [f"{r} = self.{name}(x){split}" for r, name in zip("qkv", names, strict=True)], "three"
    if kind == "matrices":
        made = [f"self.{name} = nn.Parameter(torch.randn({width}, {width}) / {width}**0.5)" for name in names]
        split = ".reshape(B, T, H, d).transpose(1, 2)"
        return made, [f"{r} = (x @ self.{n}){split}" for r, n in zip("qkv", names, strict=True)], "matrices"
    if kind == "by head":
        shape = f"self.count, {width}, {width} // self.count"
        made = [f"self.{name} = nn.Parameter(torch.randn({shape}) / {width}**0.5)" for name in names]
        lines = [f"{r} = torch.einsum('btm,hmd->bhtd', x, self.{n})" for r, n in zip("qkv", names, strict=True)]
        return made, lines, "three-dimensional matrices"
    layer = f"nn.Linear({width}, {width} // self.count, bias={bias})"
    made = [f"self.{name} = nn.ModuleList([{layer} for _ in range(self.count)])" for name in names]
    lines = [f"{r} = torch.stack([f(x) for f in self.{n}], dim=1)" for r, n in zip("qkv", names, strict=True)]
    return made, lines, "lists"


def _attend(rng: random.Random, mask: str, buffer: bool, length: str, drops: bool) -> tuple[list[str], list[str]]:
    """Draw what happens from scores to context: lines for forward, and for the constructor."""
    if mask == "kernel":
        p = ", dropout_p=self.dropout.p if self.training else 0.0" if drops else ""
        return [f"context = F.scaled_dot_product_attention(q, k, v, is_causal=True{p})"], []
    lines, made = [], []
    if mask == "argument":
        lines += ["if mask is not None:", f"    {ARGUMENTS[rng.choice(list(ARGUMENTS))]}"]
    elif mask in MASKS:
        making, use = MASKS[mask]
        if buffer:
            made = [f"self.register_buffer('causal', {making.format(n=length, device='')}, persistent=False)"]
            lines += [use.format(mask="self.causal[:T, :T]")]
        else:
            lines += [f"causal = {making.format(n='T', device=', device=x.device')}", use.format(mask="causal")]
    lines.append(rng.choice(("weights = F.softmax(scores, dim=-1)", "weights = scores.softmax(-1)",
                             "weights = torch.softmax(scores, dim=3)")))  # fmt: skip
    lines.append(f"context = {'self.dropout(weights)' if drops else 'weights'} @ v")
    return lines, made
