"""The tensor story of one forward pass, told by walking through the model's own parts one by one.

What is computed is what the model computes: the last check compares the logits at the end with the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mhsa_cli.core.model import attention as parts
from mhsa_cli.core.model import linear_attention as features
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.kv_cache import LayerCache
from mhsa_cli.core.model.layers import LayerNorm, Linear
from mhsa_cli.core.model.transformer import MLP, Block, TransformerLM
from mhsa_cli.records.trace import TraceStep

SOFTMAX_FLOPS = 5  # a number: compare, subtract, exp, add, divide
ROTATE_FLOPS = 3  # a number: two products and one sum
NORM_FLOPS = {"LayerNorm": 6, "RMSNorm": 4}  # a number; work done once a row is left out


class Notes:
    """Write down each tensor of a walk, and the worst of what is measured on the way. Silent notes do neither."""

    def __init__(self, sizes: Mapping[str, int], positions: str, *, silent: bool = False) -> None:
        self.sizes, self.positions, self.silent = sizes, positions, silent
        self.steps: list[TraceStep] = []
        self.worst: dict[str, float] = {}
        self.part, self.layer = "", -1

    def __call__(
        self,
        name: str,
        how: str,
        symbols: str,
        tensor: Tensor,
        *inputs: Tensor,
        flops: int = 0,
        seen: Tensor | None = None,
    ) -> Tensor:
        """Note `tensor`, made from `inputs`, and give it back. `seen` says which of its last two axes have a value."""
        if self.silent:
            return tensor
        view = any(tensor.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in inputs)
        data = "view" if view else "new" if flops else "copy" if inputs else "input"
        mean, std = moments(tensor if seen is None else tensor[..., seen])
        step = TraceStep(
            part=self.part,
            layer=self.layer if self.layer >= 0 else None,
            name=name,
            how=how,
            symbols=tuple(symbols.split()),
            shape=tuple(tensor.shape),
            data=data,
            strides=tensor.stride(),
            dtype=str(tensor.dtype).removeprefix("torch."),
            flops=flops,
            bytes=0 if view else tensor.untyped_storage().nbytes(),
            mean=mean,
            std=std,
        )
        self.steps.append(step)
        return tensor

    def measure(self, name: str, value: Tensor | float) -> None:
        """Keep the largest value of a name; a NaN stays."""
        found, before = float(value), self.worst.get(name, -math.inf)
        self.worst[name] = found if found > before or math.isnan(found) else before

    def linear(self, name: str, symbols: str, layer: Linear, x: Tensor, how: str) -> Tensor:
        """Apply a linear layer and note what it makes."""
        y = layer(x)
        flops = y.numel() * (2 * x.size(-1) + (layer.bias is not None))
        return self(name, how, symbols, y, x, flops=flops)

    def norm(self, layer: nn.Module, x: Tensor, how: str) -> Tensor:
        """Normalise and note it; no norm makes no step."""
        h = layer(x)
        if h is x:
            return x
        each = NORM_FLOPS[type(layer).__name__] + (isinstance(layer, LayerNorm) and layer.bias is not None)
        return self("h", how, "B T D", h, x, flops=each * h.numel())


def moments(tensor: Tensor) -> tuple[float | None, float | None]:
    """Give mean and standard deviation (of these numbers, not of a population they are drawn from)."""
    if not tensor.is_floating_point():
        return None, None
    std, mean = torch.std_mean(tensor if tensor.dtype == torch.float64 else tensor.float(), correction=0)
    return float(mean), float(std)


def worst_of(tensor: Tensor) -> Tensor:
    """Give the largest absolute value, without a copy; NaN if there is one."""
    return torch.linalg.vector_norm(tensor, math.inf)


def symbols_of(model: TransformerLM, ids: Tensor, d_mlp: int) -> dict[str, int]:
    """Give every symbol's size. Where every head has its own keys and values, G does not appear: it is H."""
    attn, table = model.attention[0], model.tok_emb.weight
    B, T = ids.shape
    sizes = {"B": B, "T": T, "D": attn.d_model, "H": attn.n_heads, "G": attn.n_kv_heads, "d_head": attn.d_head}
    if attn.n_kv_heads == attn.n_heads:
        del sizes["G"]
    return sizes | ({"d_mlp": d_mlp} if d_mlp else {}) | {"V": table.size(0)}


def size_of(symbol: str, sizes: Mapping[str, int]) -> int:
    """Work out a symbol: `H`, a number, or a sum of products such as `D+2*G*d_head`."""
    terms = (term.split("*") for term in symbol.split("+"))
    return sum(math.prod(int(f) if f.isdigit() else sizes[f] for f in factors) for factors in terms)


def walk(model: TransformerLM, ids: Tensor, note: Notes) -> Tensor:
    """Go from ids (B, T) to logits (B, T, V) as the model does, noting every tensor."""
    pos = model.pos[: ids.size(-1)]
    note.part, note.layer = "embedding", -1
    note("ids", "the task's", "B T", ids)
    x = note("x", "tok_emb[ids]", "B T D", model.tok_emb(ids), ids)
    placed = model.positions.embed(x, pos)
    if placed is not x:  # else the scheme acts at another moment
        x = note("x", f"+ {note.positions}", "B T D", placed, x, flops=placed.numel())
    for layer, block in enumerate(model.blocks):
        note.layer = layer
        x = through_block(block, x, pos, note)
    note.part, note.layer = "head", -1
    h = note.norm(model.final_norm, x, "final_norm")
    return note.linear("logits", "B T V", model.lm_head, h, "lm_head")


def through_block(block: Block, x: Tensor, pos: Tensor, note: Notes) -> Tensor:
    """Go through one block: x (B, T, D) to (B, T, D)."""
    note.part = "attention"
    h = note.norm(block.attn_norm, x, "attn_norm")
    x = added(block, x, through_attention(block.inner, h, pos, note), note)
    if block.mlp is None or block.mlp_norm is None:
        return x
    note.part = "MLP"
    return added(block, x, through_mlp(block.mlp, note.norm(block.mlp_norm, x, "mlp_norm"), note), note)


def added(block: Block, x: Tensor, y: Tensor, note: Notes) -> Tensor:
    """Add a part's input to its output, where the block does so."""
    return note("x", "x + y", "B T D", x + y, x, y, flops=x.numel()) if block.residual else y


def through_mlp(mlp: MLP, h: Tensor, note: Notes) -> Tensor:
    """Go through the MLP: h (B, T, D) to (B, T, D)."""
    up = note.linear("up", "B T d_mlp", mlp.up, h, "up")
    if mlp.gate is None:
        hidden = note("hidden", "gelu(up)", "B T d_mlp", F.gelu(up), up, flops=up.numel())
    else:
        gate = note.linear("gate", "B T d_mlp", mlp.gate, h, "gate")
        hidden = note("hidden", "silu(g) * up", "B T d_mlp", F.silu(gate) * up, gate, up, flops=2 * up.numel())
    return note.linear("y", "B T D", mlp.down, hidden, "down")


def through_attention(attn: MultiHeadSelfAttention, h: Tensor, pos: Tensor, note: Notes) -> Tensor:
    """Go through one attention block: h (B, T, D) to y (B, T, D)."""
    own = attn.n_kv_heads == attn.n_heads
    wide, narrow, kv = ("3*D", "D", "H") if own else ("D+2*G*d_head", "G*d_head", "G")
    qkv = note.linear("qkv", f"B T {wide}", attn.qkv_proj, h, "qkv_proj")
    q, k, v = qkv.split(attn.widths, dim=-1)
    for name, width, t in (("q", "D", q), ("k", narrow, k), ("v", narrow, v)):
        note(name, "split", f"B T {width}", t, qkv)
    q = note("q", "split heads", "B H T d_head", parts.split_heads(q, attn.n_heads), q)
    k = note("k", "split heads", f"B {kv} T d_head", parts.split_heads(k, attn.n_kv_heads), k)
    v = note("v", "split heads", f"B {kv} T d_head", parts.split_heads(v, attn.n_kv_heads), v)
    turned, k2 = attn.positions.rotate(q, k, pos)
    if turned is not q:
        q = note("q", note.positions, "B H T d_head", turned, q, flops=ROTATE_FLOPS * q.numel())
        k = note("k", note.positions, f"B {kv} T d_head", k2, k, flops=ROTATE_FLOPS * k.numel())
    if not own:
        k = note("k", "share heads", "B H T d_head", parts.share_heads(k, attn.n_heads), k)
        v = note("v", "share heads", "B H T d_head", parts.share_heads(v, attn.n_heads), v)
    context = KINDS[attn.kind](attn, q, k, v, pos, note)
    merged = note("merged", "merge heads", "B T D", parts.merge_heads(context), context)
    y = note.linear("y", "B T D", attn.out_proj, merged, "out_proj")
    if not note.silent and attn.kind != "uniform":  # which has one path only
        # Softmax is told materialised and trained fused; linear attention is told as it is trained.
        other = attn(h, pos=pos, return_weights=attn.kind == "linear")
        other = other[0] if isinstance(other, tuple) else other
        note.measure("paths", worst_of(other - y))
        note.measure("y", worst_of(y))
    return y


def by_softmax(attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, note: Notes) -> Tensor:
    """Attend by the softmax of scores: q, k, v (B, H, T, d) to (B, H, T, d)."""
    masked = q if note.silent else scores(attn, q, k, pos, note)
    weights = attn.weights(q, k, None, pos)
    note("weights", "softmax", "B H T T", weights, masked, flops=SOFTMAX_FLOPS * weights.numel())
    if not note.silent:
        note.measure("softmax", worst_of(masked.to(weights.dtype).softmax(-1).sub_(weights)))
        measure_weights(weights, attn.window, note)
    return weighted(weights, v, note)


def scores(attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, pos: Tensor, note: Notes) -> Tensor:
    """Note the scores at each of their stages; returns them masked, (B, H, T, T)."""
    shape = "B H T T"
    raw = q.contiguous() @ k.contiguous().transpose(-2, -1)
    note("scores", "q @ kT", shape, raw, q, k, flops=2 * raw.numel() * attn.d_head)
    scaled = parts.attention_scores(q, k)
    note("scaled", f"/ sqrt({attn.d_head})", shape, scaled, raw, flops=raw.numel())
    sizes = [torch.linalg.vector_norm(t, dtype=torch.float64) for t in (raw, scaled)]  # without a copy of (T, T)
    if sizes[1] > 0:  # else nothing tells what they were divided by
        note.measure("divisor", sizes[0] / sizes[1])
        note.measure("-divisor", -sizes[0] / sizes[1])
    del raw
    bias = attn.positions.bias(pos, pos)
    if bias is not None:
        scaled = note("biased", f"+ {note.positions}", shape, scaled + bias, scaled, flops=scaled.numel())
    visible = attn.causal_mask[: q.size(-2), : q.size(-2)]
    return note("masked", "mask: -inf", shape, scaled.masked_fill(~visible, -math.inf), scaled, seen=visible)


def by_linear(attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, note: Notes) -> Tensor:
    """Attend by running sums of features: q, k, v (B, H, T, d) to (B, H, T, d). There are no scores."""
    sums = LayerCache()
    context = features.linear_attention(q, k, v, sums)
    if note.silent:
        return context
    (B, H, T, d), two = q.shape, 2  # the feature map: elu, and plus one
    phi_q = note("phi(q)", "elu(q) + 1", "B H T d_head", features.feature_map(q), q, flops=two * q.numel())
    phi_k = note("phi(k)", "elu(k) + 1", "B H T d_head", features.feature_map(k), k, flops=two * k.numel())
    assert sums.state is not None
    state, total = sums.state
    note("state", "sum phi(k) vT", "B H d_head d_head", state, phi_k, v, flops=2 * B * H * T * d * d)
    note("total", "sum phi(k)", "B H d_head 1", total, phi_k, flops=B * H * T * d)
    note("context", "running sums", "B H T d_head", context, phi_q, state, v, flops=B * H * linear_flops(T, d))
    measure_weights(attn.weights(q, k, None, pos), None, note)
    return context


def linear_flops(T: int, d: int) -> int:
    """Count the cost of one head's context: exact products within a block, the sums of the past for those behind it."""
    count = 0
    for start in range(0, T, features.BLOCK):
        n = min(features.BLOCK, T - start)
        count += 4 * n * n * d + n * n + n * d  # q @ kT, @ v, the sum of a row, the division
        count += (2 * n * d * d + 2 * n * d + n * d + n) if start else 0  # q @ state, q @ total, both added
    return count


def by_uniform(attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, note: Notes) -> Tensor:
    """Attend evenly over the past, whatever q and k say: v (B, H, T, d) to (B, H, T, d)."""
    weights = attn.weights(q, k, None, pos)
    note("weights", "1 / visible", "B H T T", weights, q, k, flops=q.size(-2) ** 2)
    if not note.silent:
        measure_weights(weights, None, note)
    return weighted(weights, v, note)


def weighted(weights: Tensor, v: Tensor, note: Notes) -> Tensor:
    """Mix the values: weights (B, H, T, T), v (B, H, T, d) to (B, H, T, d)."""
    context = weights.to(v.dtype) @ v
    return note("context", "weights @ v", "B H T d_head", context, weights, v, flops=2 * weights.numel() * v.size(-1))


def measure_weights(weights: Tensor, window: int | None, note: Notes) -> None:
    """Measure how far a row's sum is from one, and the largest weight where none may be."""
    place = torch.arange(weights.size(-1), device=weights.device)
    back = place.unsqueeze(-1) - place  # how far behind its query a key stands; not taken from the model's mask
    visible = (back >= 0) & (back < (window or len(place)))
    note.measure("sum", worst_of(weights.sum(-1) - 1))
    note.measure("hidden", worst_of(weights.masked_fill(visible, 0.0)))
    note.worst["rows"] = note.worst.get("rows", 0) + weights.shape[:-1].numel()


Kind = Callable[[MultiHeadSelfAttention, Tensor, Tensor, Tensor, Tensor, Notes], Tensor]
KINDS: dict[str, Kind] = {"softmax": by_softmax, "linear": by_linear, "uniform": by_uniform}
