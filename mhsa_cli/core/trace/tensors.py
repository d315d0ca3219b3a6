"""One forward pass, tensor by tensor, computed with the model's own parts.

The check "logits" compares the result with the model's own forward pass.
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

SOFTMAX_FLOPS = 5  # per number: compare, subtract, exp, add, divide
ROTATE_FLOPS = 3  # per number: two products and one sum
NORM_FLOPS = {"LayerNorm": 6, "RMSNorm": 4}  # per number, without what is done once per row


class Recorder:
    """Records each tensor of a forward pass, and the worst value of each measurement; nothing if `silent`."""

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
        visible: Tensor | None = None,
    ) -> Tensor:
        """Record `tensor`, computed from `inputs`, and return it. Mean and std are over `visible` (Tq, Tk) if given."""
        if self.silent:
            return tensor
        view = any(tensor.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in inputs)
        mean, std = mean_and_std(tensor if visible is None else tensor[..., visible])
        step = TraceStep(
            part=self.part,
            layer=self.layer if self.layer >= 0 else None,
            name=name,
            how=how,
            symbols=tuple(symbols.split()),
            shape=tuple(tensor.shape),
            data="view" if view else "new" if flops else "copy" if inputs else "input",
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
        """Keep the largest value by name; NaN is kept."""
        new, worst = float(value), self.worst.get(name, -math.inf)
        self.worst[name] = new if new > worst or math.isnan(new) else worst

    def linear(self, name: str, symbols: str, layer: Linear, x: Tensor, how: str) -> Tensor:
        """Apply a linear layer and record its output."""
        y = layer(x)
        flops = y.numel() * (2 * x.size(-1) + (layer.bias is not None))
        return self(name, how, symbols, y, x, flops=flops)

    def norm(self, layer: nn.Module, x: Tensor, how: str) -> Tensor:
        """Apply a norm and record its output; nn.Identity records nothing."""
        h = layer(x)
        if h is x:
            return x
        each = NORM_FLOPS[type(layer).__name__] + (isinstance(layer, LayerNorm) and layer.bias is not None)
        return self("h", how, "B T D", h, x, flops=each * h.numel())


def mean_and_std(tensor: Tensor) -> tuple[float | None, float | None]:
    """Compute mean and population standard deviation; None for integers."""
    if not tensor.is_floating_point():
        return None, None
    std, mean = torch.std_mean(tensor if tensor.dtype == torch.float64 else tensor.float(), correction=0)
    return float(mean), float(std)


def max_abs(tensor: Tensor) -> Tensor:
    """Compute the largest absolute value without a copy; NaN if there is one."""
    return torch.linalg.vector_norm(tensor, math.inf)


def symbols_of(model: TransformerLM, ids: Tensor, d_mlp: int) -> dict[str, int]:
    """Return the size of every symbol; G is omitted where it equals H."""
    attn, table = model.attention[0], model.tok_emb.weight
    B, T = ids.shape
    sizes = {"B": B, "T": T, "D": attn.d_model, "H": attn.n_heads, "G": attn.n_kv_heads, "d_head": attn.d_head}
    if attn.n_kv_heads == attn.n_heads:
        del sizes["G"]
    return sizes | ({"d_mlp": d_mlp} if d_mlp else {}) | {"V": table.size(0)}


def size_of(symbol: str, sizes: Mapping[str, int]) -> int:
    """Evaluate a symbol: `H`, a number, or a sum of products such as `D+2*G*d_head`."""
    terms = (term.split("*") for term in symbol.split("+"))
    return sum(math.prod(int(f) if f.isdigit() else sizes[f] for f in factors) for factors in terms)


def forward(model: TransformerLM, ids: Tensor, record: Recorder) -> Tensor:
    """Compute logits (B, T, V) of ids (B, T) as the model does, recording every tensor."""
    pos = model.pos[: ids.size(-1)]
    record.part, record.layer = "embedding", -1
    record("ids", "the task's", "B T", ids)
    x = record("x", "tok_emb[ids]", "B T D", model.tok_emb(ids), ids)
    embedded = model.positions.embed(x, pos)
    if embedded is not x:
        x = record("x", f"+ {record.positions}", "B T D", embedded, x, flops=embedded.numel())
    for layer, block in enumerate(model.blocks):
        record.layer = layer
        x = block_forward(block, x, pos, record)
    record.part, record.layer = "head", -1
    h = record.norm(model.final_norm, x, "final_norm")
    return record.linear("logits", "B T V", model.lm_head, h, "lm_head")


def block_forward(block: Block, x: Tensor, pos: Tensor, record: Recorder) -> Tensor:
    """Compute one block: x (B, T, D) to (B, T, D)."""

    def residual(x: Tensor, y: Tensor) -> Tensor:
        return record("x", "x + y", "B T D", x + y, x, y, flops=x.numel()) if block.residual else y

    record.part = "attention"
    x = residual(x, attention_forward(block.inner, record.norm(block.attn_norm, x, "attn_norm"), pos, record))
    if block.mlp is None or block.mlp_norm is None:
        return x
    record.part = "MLP"
    return residual(x, mlp_forward(block.mlp, record.norm(block.mlp_norm, x, "mlp_norm"), record))


def mlp_forward(mlp: MLP, h: Tensor, record: Recorder) -> Tensor:
    """Compute the MLP: h (B, T, D) to (B, T, D)."""
    up = record.linear("up", "B T d_mlp", mlp.up, h, "up")
    if mlp.gate is None:
        hidden = record(
            "hidden", f"{mlp.activation.__name__}(up)", "B T d_mlp", mlp.activation(up), up, flops=up.numel()
        )
    else:
        gate = record.linear("gate", "B T d_mlp", mlp.gate, h, "gate")
        hidden = record("hidden", "silu(g) * up", "B T d_mlp", F.silu(gate) * up, gate, up, flops=2 * up.numel())
    return record.linear("y", "B T D", mlp.down, hidden, "down")


def attention_forward(attn: MultiHeadSelfAttention, h: Tensor, pos: Tensor, record: Recorder) -> Tensor:
    """Compute attention: h (B, T, D) to y (B, T, D)."""
    shared = attn.n_kv_heads != attn.n_heads
    wide, narrow, kv = ("D+2*G*d_head", "G*d_head", "G") if shared else ("3*D", "D", "H")
    full = "D"  # the width of all heads
    if attn.widths[0] != attn.d_model:
        full = "H*d_head"
        wide, narrow = (f"{full}+2*G*d_head", narrow) if shared else (f"3*{full}", full)
    qkv = record.linear("qkv", f"B T {wide}", attn.qkv_proj, h, "qkv_proj")
    q, k, v = qkv.split(attn.widths, dim=-1)
    for name, width, t in (("q", full, q), ("k", narrow, k), ("v", narrow, v)):
        record(name, "split", f"B T {width}", t, qkv)
    q = record("q", "split heads", "B H T d_head", parts.split_heads(q, attn.n_heads), q)
    k = record("k", "split heads", f"B {kv} T d_head", parts.split_heads(k, attn.n_kv_heads), k)
    v = record("v", "split heads", f"B {kv} T d_head", parts.split_heads(v, attn.n_kv_heads), v)
    rotated, k2 = attn.positions.rotate(q, k, pos)
    if rotated is not q:
        q = record("q", record.positions, "B H T d_head", rotated, q, flops=ROTATE_FLOPS * q.numel())
        k = record("k", record.positions, f"B {kv} T d_head", k2, k, flops=ROTATE_FLOPS * k.numel())
    if shared:
        k = record("k", "share heads", "B H T d_head", parts.share_heads(k, attn.n_heads), k)
        v = record("v", "share heads", "B H T d_head", parts.share_heads(v, attn.n_heads), v)
    context = KINDS[attn.kind](attn, q, k, v, pos, record)
    merged = record("merged", "merge heads", f"B T {full}", parts.merge_heads(context), context)
    y = record.linear("y", "B T D", attn.out_proj, merged, "out_proj")
    if not record.silent and attn.kind != "uniform":  # which has one implementation
        # Recorded: softmax materialised, linear attention with running sums. The other implementation must agree.
        other = attn(h, pos=pos, return_weights=attn.kind == "linear")
        other = other[0] if isinstance(other, tuple) else other
        record.measure("paths", max_abs(other - y))
        record.measure("y", max_abs(y))
    return y


def softmax_context(
    attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, record: Recorder
) -> Tensor:
    """Attend with a softmax of scores: q, k, v (B, H, T, d) to (B, H, T, d)."""
    masked = q if record.silent else scores(attn, q, k, pos, record)
    weights = attn.weights(q, k, None, pos)
    record("weights", "softmax", "B H T T", weights, masked, flops=SOFTMAX_FLOPS * weights.numel())
    if not record.silent:
        record.measure("softmax", max_abs(masked.to(weights.dtype).softmax(-1).sub_(weights)))
    return weighted_values(weights, v, attn, record)


def scores(attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, pos: Tensor, record: Recorder) -> Tensor:
    """Record the scores at each stage; returns them masked if there is a mask, (B, H, T, T)."""
    shape = "B H T T"
    raw = q.contiguous() @ k.contiguous().transpose(-2, -1)
    record("scores", "q @ kT", shape, raw, q, k, flops=2 * raw.numel() * attn.d_head)
    scaled = parts.attention_scores(q, k)
    record("scaled", f"/ sqrt({attn.d_head})", shape, scaled, raw, flops=raw.numel())
    sizes = [torch.linalg.vector_norm(t, dtype=torch.float64) for t in (raw, scaled)]  # without a copy of (T, T)
    if sizes[1] > 0:  # else the divisor is unknown
        record.measure("divisor", sizes[0] / sizes[1])
        record.measure("-divisor", -sizes[0] / sizes[1])
    del raw
    bias = attn.positions.bias(pos, pos)
    if bias is not None:
        scaled = record("biased", f"+ {record.positions}", shape, scaled + bias, scaled, flops=scaled.numel())
    if not attn.causal:
        return scaled
    visible = attn.visible[: q.size(-2), : q.size(-2)]
    return record("masked", "mask: -inf", shape, scaled.masked_fill(~visible, -math.inf), scaled, visible=visible)


def linear_context(
    attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, record: Recorder
) -> Tensor:
    """Attend with sums of features, of all keys or running, without scores: q, k, v (B, H, T, d) to (B, H, T, d)."""
    sums = LayerCache()
    context = features.linear_attention(q, k, v, sums) if attn.causal else features.unmasked_linear_attention(q, k, v)
    if record.silent:
        return context
    (B, H, T, d), shape = q.shape, "B H T d_head"
    phi_q = record("phi(q)", "elu(q) + 1", shape, features.feature_map(q), q, flops=2 * q.numel())
    phi_k = record("phi(k)", "elu(k) + 1", shape, features.feature_map(k), k, flops=2 * k.numel())
    if attn.causal:
        assert sums.state is not None
        state, total = sums.state
        how, read, flops = "running sums", [phi_q, state, v], linear_flops(T, d)
    else:
        state, total = phi_k.transpose(-2, -1) @ v, phi_k.sum(-2).unsqueeze(-1)
        how, read, flops = "phi(q) @ sums", [phi_q, state], T * (2 * d * d + 2 * d + d)  # both products, the division
    record("state", "sum phi(k) vT", "B H d_head d_head", state, phi_k, v, flops=2 * B * H * T * d * d)
    record("total", "sum phi(k)", "B H d_head 1", total, phi_k, flops=B * H * T * d)
    record("context", how, shape, context, *read, flops=B * H * flops)
    measure_weights(attn.weights(q, k, None, pos), attn, record)
    return context


def linear_flops(T: int, d: int) -> int:
    """Count the operations of one head's context: exact products within a block, running sums for earlier blocks."""
    count = 0
    for start in range(0, T, features.BLOCK):
        n = min(features.BLOCK, T - start)
        count += 4 * n * n * d + n * n + n * d  # q @ kT, @ v, the sum of a row, the division
        count += (2 * n * d * d + 2 * n * d + n * d + n) if start else 0  # q @ state, q @ total, both added
    return count


def uniform_context(
    attn: MultiHeadSelfAttention, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, record: Recorder
) -> Tensor:
    """Attend uniformly to the visible keys: v (B, H, T, d) to (B, H, T, d)."""
    weights = attn.weights(q, k, None, pos)
    record("weights", "1 / visible", "B H T T", weights, q, k, flops=q.size(-2) ** 2)
    return weighted_values(weights, v, attn, record)


def weighted_values(weights: Tensor, v: Tensor, attn: MultiHeadSelfAttention, record: Recorder) -> Tensor:
    """Compute weights @ values: weights (B, H, T, T), v (B, H, T, d) to (B, H, T, d)."""
    if not record.silent:
        measure_weights(weights, attn, record)
    flops = 2 * weights.numel() * v.size(-1)
    return record("context", "weights @ v", "B H T d_head", weights.to(v.dtype) @ v, weights, v, flops=flops)


def measure_weights(weights: Tensor, attn: MultiHeadSelfAttention, record: Recorder) -> None:
    """Measure how far row sums are from 1, and with a mask the largest weight on a masked key."""
    record.measure("sum", max_abs(weights.sum(-1) - 1))
    if attn.causal:
        place = torch.arange(weights.size(-1), device=weights.device)
        back = place.unsqueeze(-1) - place  # distance from query to key, independent of the model's mask
        visible = (back >= 0) & (back < (attn.window or len(place)))
        record.measure("hidden", max_abs(weights.masked_fill(visible, 0.0)))
    record.worst["rows"] = record.worst.get("rows", 0) + weights.shape[:-1].numel()


Context = Callable[[MultiHeadSelfAttention, Tensor, Tensor, Tensor, Tensor, Recorder], Tensor]
KINDS: dict[str, Context] = {"softmax": softmax_context, "linear": linear_context, "uniform": uniform_context}
