"""Reference attention in float64, and the wrong forms of each stage that people write.

A `Spec` names one form per stage. Sizes: B batch, T tokens, D = d_model, H heads, G key/value heads, d = d_head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.check.read import masks
from mhsa_cli.check.read.around import MLP, Norm, apply_mlp, layer_norm
from mhsa_cli.core.model.positions import RopePositions


@dataclass(frozen=True, slots=True)
class Roles:
    """The weights of a block by role: y = x W^T + b.

    Shapes: q (H, d, D), k and v (G, d, D), their biases without the D; out (D_out, H*d), or None.
    `norm` is a LayerNorm in the block, `q_norm` and `k_norm` are those of queries and keys; `gate` (rows, D) with its
    bias gates the context or the output.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_bias: Tensor | None = None
    k_bias: Tensor | None = None
    v_bias: Tensor | None = None
    out: Tensor | None = None
    out_bias: Tensor | None = None
    norm: Norm | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    gate: Tensor | None = None
    gate_bias: Tensor | None = None
    mlp: MLP | None = None
    mlp_norm: Norm | None = None

    @property
    def n_heads(self) -> int:
        return self.q.size(0)


class Spec(NamedTuple):
    """One form for every stage, in order of computation; `norm`, `bias`, `gate` and `mlp` are of other kinds."""

    frame: str = "plain"
    project: str = "right"
    norm: str = "none"
    split: str = "right"
    rope: str = "none"
    rates: str = "10000"
    key: str = "right"
    scale: str = "d_head"
    bias: str = "none"
    mask: str = "causal"
    fill: str = "inf"
    softmax: str = "keys"
    values: str = "right"
    merge: str = "right"
    gate: str = "none"
    out: str = "right"
    mlp: str = "none"


ROPES = ("interleaved", "half")
FRAMES = ("plain", "residual", "pre-norm", "pre-norm residual", "post-norm residual", "post-norm")
# Which projections serve as query, key and value.
PROJECTIONS = {
    "right": "qkv",
    "query_from_key": "kkv",
    "key_from_query": "qqv",
    "value_from_key": "qkk",
    "value_from_query": "qkq",
    "query_and_value_from_key": "kkk",
    "names_q_k": "kqv",
    "names_k_v": "qvk",
    "names_q_v": "vkq",
    "names_qkv_vqk": "vqk",
    "names_qkv_kvq": "kvq",
}
# The number of stages that the heads, the scores, the attention weights, and the merged context depend on.
HEADS, SCORES, WEIGHTS, MERGED = (Spec._fields.index(last) + 1 for last in ("rates", "key", "softmax", "gate"))
MOST_NUMBERS = 4_000_000  # of weights of many specs, the largest tensors, that are kept
SOFTMAX_AXES = {"keys": -1, "queries": -2, "heads": -3, "batch": -4, "twice": -1}
FILLS = {"inf": -math.inf, "finite": -1e9, "zero": 0.0, "ten": -10.0}  # new value of masked scores
ADDED = {"added": -1e9, "one less": -1.0, "ten less": -10.0}  # or the number added to them


class Reference:
    """Computes any spec on one input, and caches what specs have in common.

    Shapes: x (B, T, D); positions (T,) of the tokens.
    """

    def __init__(self, roles: Roles, x: Tensor, positions: Tensor | None = None) -> None:
        self.roles, self.x = roles, x
        self.B, self.T, self.D = x.shape
        self.H, self.d = roles.q.shape[:2]
        self.groups = roles.k.size(0)
        self.positions = torch.arange(self.T) if positions is None else positions
        root = math.sqrt
        self.factors = {  # factor of the scores in each form of the scale
            "d_head": 1 / root(self.d),
            "d_model": 1 / root(self.D),
            "none": 1.0,
            "unrooted": 1 / self.d,
            "multiplied": root(self.d),
            "root_2": root(2 / self.d),
            "seq_len": 1 / root(self.T),
            "n_heads": 1 / root(self.H),
            "model_unrooted": 1 / self.D,
            "model_multiplied": root(self.D),
            "after": 1.0,  # the weights are divided instead, by the root of d_head or of d_model
            "after_width": 1.0,
        }
        self._cache: dict[tuple[object, ...], Tensor] = {}

    def output(self, spec: Spec) -> Tensor:
        """Compute the output (B, T, D_out); a wrong form may give another shape."""
        merged = self._cached(
            ("merged", *spec[:MERGED]), lambda: self._gated(spec, self.merge(spec.merge, self.context(spec)), "merged")
        )
        y = self.finish(spec, self._gated(spec, self.out(spec.out, merged), "out"))
        return y.transpose(1, 2) if spec.out == "transposed" else y

    def outputs(self, specs: Sequence[Spec], late: Spec) -> Tensor:
        """Compute many specs at once that differ only in the weights: (N, B, T, D_out).

        `late` has the stages that they share: those up to the scores, and those after the weights.
        """
        N = len(specs)

        def stacked() -> Tensor:
            """All specs as one long head for each (b, h), which multiplies faster: (B, H, N * T, T)."""
            alike: dict[Spec, list[int]] = {}  # those that differ in the scale only are computed together
            for n, spec in enumerate(specs):
                alike.setdefault(spec._replace(scale=""), []).append(n)
            whole = [Spec(*late[:SCORES], *spec[SCORES:]) for spec in specs]
            made = torch.cat([self._weights([whole[n] for n in same]) for same in alike.values()])
            order = torch.tensor([n for same in alike.values() for n in same]).argsort()
            return made[order].movedim(0, 2).flatten(2, 3)

        key = ("stacked", late[:SCORES], tuple(spec[SCORES:WEIGHTS] for spec in specs))
        held = sum(tensor.numel() for other, tensor in self._cache.items() if other[0] == "stacked")
        if key not in self._cache and held > MOST_NUMBERS:
            self._cache = {other: tensor for other, tensor in self._cache.items() if other[0] != "stacked"}
        weights = self._cached(key, stacked)
        context = (weights @ self.heads(late, "v")).unflatten(2, (N, -1))
        context = context.movedim(2, 0).flatten(0, 1)
        merged = self.merge(late.merge, context).unflatten(0, (N, -1))
        y = self._gated(late, self.out(late.out, self._gated(late, merged, "merged")), "out")
        return self.finish(late, y)

    def finish(self, spec: Spec, y: Tensor) -> Tensor:
        """Add the residual, then a norm, as the frame says, and the MLP, after attention or beside it."""
        frame, (place, _, activation) = spec.frame, spec.mlp.partition(" ")
        if frame.endswith("residual") and y.shape[-3:] == self.x.shape:
            y = self.x + y
        y = self._norm(y) if frame.startswith("post-norm") else y
        if place == "none" or self.roles.mlp is None:
            return y
        norm = self.roles.mlp_norm or (self.roles.norm if place == "beside" else None)
        before = self.x if place == "beside" else y
        if frame.startswith("post-norm"):
            return layer_norm(y + apply_mlp(self.roles.mlp, activation, before), norm)
        return y + apply_mlp(self.roles.mlp, activation, layer_norm(before, norm))

    def weights(self, spec: Spec) -> Tensor:
        """Compute the attention weights (B, H, T, T)."""
        return self._cached(("weights", *spec[:WEIGHTS]), lambda: self._weights([spec])[0])

    def _cached(self, key: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _norm(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.roles.norm)

    def _input(self, spec: Spec) -> Tensor:
        return self._norm(self.x) if spec.frame.startswith("pre-norm") else self.x

    def _gated(self, spec: Spec, y: Tensor, where: str) -> Tensor:
        """Multiply by the gate if it applies here: to the merged context, or to the output."""
        place, _, activation = spec.gate.partition(" ")
        if place != where or self.roles.gate is None:
            return y
        gate = self._input(spec) @ self.roles.gate.transpose(0, 1)
        gate = gate if self.roles.gate_bias is None else gate + self.roles.gate_bias
        gate = gate * gate.sigmoid() if activation == "silu" else gate.sigmoid()
        return y * gate.repeat_interleave(y.size(-1) // gate.size(-1), -1)  # one number a head, or one a feature

    def flat(self, spec: Spec, role: str) -> Tensor:
        """Project to queries, keys or values: (B, T, heads * d)."""
        x = self._input(spec)
        if spec.project == "value_unprojected" and role == "v":
            return x
        used = PROJECTIONS.get(spec.project, "qkv")["qkv".index(role)]
        weight, bias = getattr(self.roles, used), getattr(self.roles, f"{used}_bias")
        y = x @ weight.flatten(0, 1).transpose(0, 1)
        return y if bias is None else y + bias.flatten()

    def heads(self, spec: Spec, role: str) -> Tensor:
        """Split queries, keys or values into heads: (B, H, T, d)."""
        return self._cached(("heads", role, *spec[:HEADS]), lambda: self._split(spec, role))

    def _normed(self, spec: Spec, role: str, x: Tensor, place: str) -> Tensor:
        """Normalise queries or keys (..., heads or tokens, width) if the norm is applied at this place."""
        if spec.norm == "none":
            return x
        kind, where, roles, eps = spec.norm.split(" ")
        if where != place or role not in roles:
            return x
        norm = self.roles.q_norm if role == "q" else self.roles.k_norm
        centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
        if kind == "l2":
            y = x / x.norm(dim=-1, keepdim=True).clamp_min(float(eps))
        else:
            y = centred * (centred.square().mean(-1, keepdim=True) + float(eps)).rsqrt()
        if norm is None:
            return y
        weight, bias, _ = norm
        return y * weight if bias is None else y * weight + bias

    def _split(self, spec: Spec, role: str) -> Tensor:
        flat = self._normed(spec, role, self.flat(spec, role), "whole")
        n = flat.size(-1) // self.d
        repeats = self.H // n
        viewed = "qkv" if spec.split == "by_view" else spec.split.removeprefix("by_view_")
        if spec.split.startswith("by_view") and role in viewed:
            x = flat.reshape(self.B, n, self.T, self.d)
        elif spec.split == "features_first_k" and role == "k":
            x = flat.view(self.B, self.T, self.d, n).permute(0, 3, 1, 2)
        else:
            x = flat.view(self.B, self.T, n, self.d).transpose(1, 2)
        if spec.split == "groups_over_features" and n < self.H:
            x = flat.repeat_interleave(repeats, dim=-1).view(self.B, self.T, self.H, self.d).transpose(1, 2)
        elif spec.split == "groups_over_tokens" and n < self.H:
            x = x.repeat_interleave(repeats, dim=2).view(self.B, self.H, self.T, self.d)
        elif n < self.H:
            tiled = spec.split == "groups_tiled"
            x = x.repeat(1, repeats, 1, 1) if tiled else x.repeat_interleave(repeats, dim=1)
        rotated = self._rotate(spec, self._normed(spec, role, x, "head"), role)
        return self._normed(spec, role, rotated, "rotated")

    def _rotate(self, spec: Spec, x: Tensor, role: str) -> Tensor:
        """Rotate by position; `rope` is "layout" or "layout:fault", `rates` the base, and which features if not all."""
        layout, _, fault = spec.rope.partition(":")
        if layout == "none" or (role == "v" and fault != "on_value") or (role == "k" and fault == "only_query"):
            return x
        if role == "q" and fault == "only_key":
            return x
        base, *part = spec.rates.split(" ")
        if part:
            return self._rotate_part(layout, float(base), part[0], int(part[1]), x)
        d, positions = self.d, self.positions.to(torch.float64)
        if role == "k":
            shifts = {"key_after": positions + 1, "key_before": positions - 1, "key_rolled": positions.roll(1)}
            positions = shifts.get(fault, positions)
            layout = {"half": "interleaved"}.get(layout, "half") if fault == "pairs_differ" else layout
        pairs = torch.arange(d // 2, dtype=torch.float64)
        exponent = {"exponent_next": 2 * (pairs + 1) / d, "exponent_half": pairs / d, "exponent_single": 4 * pairs / d,
                    "exponent_d_model": 2 * pairs / self.D, "exponent_before": 2 * (pairs - 1) / d}  # fmt: skip
        rate = float(base) ** -exponent.get(fault, 2 * pairs / d)
        angle = positions.unsqueeze(1) * rate * (-1 if fault == "backwards" else 1)
        cos, sin = angle.cos(), angle.sin()
        if fault == "angles_mixed":
            return _rotate_mixed(layout, x, cos, sin)
        return RopePositions(1, d, layout=layout).turn_by(x, cos, sin)

    def _rotate_part(self, layout: str, base: float, part: str, n: int, x: Tensor) -> Tensor:
        """Rotate n features only: the first or the last ones; or n // 2 pairs of all, at rates evenly spaced."""
        pairs = torch.arange(n // 2, dtype=torch.float64)
        if part.startswith("spread"):
            rate = base ** -torch.linspace(0, 1, n // 2, dtype=torch.float64)
            rate = torch.cat((rate, torch.zeros(self.d // 2 - n // 2, dtype=torch.float64)))
            angle = self.positions.to(torch.float64).unsqueeze(1) * rate * (-1 if part == "spread_back" else 1)
            return RopePositions(1, self.d, layout=layout).turn_by(x, angle.cos(), angle.sin())
        angle = self.positions.to(torch.float64).unsqueeze(1) * base ** -(2 * pairs / n)
        at = slice(0, n) if part == "first" else slice(self.d - n, self.d)
        turned = x.clone()
        turned[..., at] = RopePositions(1, n, layout=layout).turn_by(x[..., at], angle.cos(), angle.sin())
        return turned

    def _scores(self, spec: Spec) -> Tensor:
        """Products of queries and keys (B, H, T, T), not yet scaled."""

        def make() -> Tensor:
            q, k = self.heads(spec, "q"), self.heads(spec, "k")
            reshaped = spec.key == "reshaped"
            return q @ (k.reshape(self.B, self.H, self.d, self.T) if reshaped else k.transpose(-2, -1))

        return self._cached(("scores", *spec[:SCORES]), make)

    def _factor(self, scale: str) -> float:
        return float(scale[1:]) if scale.startswith("x") else self.factors[scale]

    def allowed(self, mask: str) -> Tensor:
        """Which keys (columns) each query (row) may attend to: (T, T), or (H, T, T) for a mask that differs by head."""
        return masks.allowed(mask, self.T)

    def _biased(self, bias: str, scores: Tensor) -> Tensor:
        """Add a bias by distance: slopes of each head ("slopes", or "tilted" with a sign), or a table for each."""
        if bias == "none":
            return scores
        kind, _, numbers = bias.partition(" ")
        table = torch.tensor(
            [[float(one) for one in head.split(",")] for head in numbers.split("|")], dtype=torch.float64
        )
        apart = torch.arange(self.T).view(-1, 1) - torch.arange(self.T)
        if kind in ("slopes", "tilted"):
            return scores - table.view(-1, 1, 1) * (apart.abs() if kind == "slopes" else apart)
        return scores + table[:, apart + table.size(1) // 2]  # by distance, from the most negative

    def _weights(self, specs: Sequence[Spec]) -> Tensor:
        """Attention weights of specs that differ in the scale only: (N, B, H, T, T)."""
        spec, allowed = specs[0], self.allowed(specs[0].mask)
        factors = torch.tensor([self._factor(one.scale) for one in specs], dtype=torch.float64)
        scores = self._biased(spec.bias, self._scores(spec) * factors.view(-1, 1, 1, 1, 1))
        if spec.mask != "after":
            fill = scores + ADDED[spec.fill] if spec.fill in ADDED else FILLS[spec.fill]
            scores = torch.where(allowed, scores, fill)
        axis = SOFTMAX_AXES.get(spec.softmax)
        weights = scores if axis is None else scores.softmax(axis)
        if spec.softmax.startswith("sigmoid"):
            weights = (scores - (math.log(self.T) if spec.softmax == "sigmoid_less_log" else 0)).sigmoid()
        if spec.softmax in ("all of a head", "everything"):
            first = -2 if spec.softmax == "all of a head" else -4
            weights = scores.flatten(first).softmax(-1).view(scores.shape)
        weights = weights.softmax(-1) if spec.softmax == "twice" else weights
        weights = weights * allowed if spec.mask == "after" else weights
        divisors = {"after": self.d, "after_width": self.D}  # of scales after the softmax
        roots = torch.tensor([math.sqrt(divisors.get(one.scale, 1)) for one in specs], dtype=torch.float64)
        return weights / roots.view(-1, 1, 1, 1, 1)

    def context(self, spec: Spec) -> Tensor:
        weights, v = self.weights(spec), self.heads(spec, "v")
        return (weights.transpose(-2, -1) if spec.values == "transposed" else weights) @ v  # (B, H, T, d)

    def merge(self, form: str, context: Tensor) -> Tensor:
        """Merge the heads' contexts (B, H, T, d) to (B, T, H * d)."""
        B, H, T, d = context.shape
        if form == "by_view":
            return context.reshape(B, T, H * d)
        if form == "features_first":
            return context.permute(0, 2, 3, 1).reshape(B, T, H * d)
        if form.startswith("groups"):
            grouped = context.view(B, self.groups, -1, T, d)
            axes = {"groups_swapped": (0, 3, 2, 1, 4), "groups_outermost": (0, 1, 3, 2, 4),
                    "groups_by_view": (0, 2, 1, 3, 4)}[form]  # fmt: skip
            return grouped.permute(axes).reshape(B, T, H * d)
        if form == "folded_as_heads_first":  # folded (B, H), unfolded (H, B)
            context = context.reshape(H, B, T, d).transpose(0, 1)
        if form == "folded_as_batch_first":  # folded (H, B), unfolded (B, H)
            context = context.transpose(0, 1).reshape(B, H, T, d)
        return context.transpose(1, 2).reshape(B, T, H * d)

    def out(self, form: str, merged: Tensor) -> Tensor:
        out, bias = self.roles.out, self.roles.out_bias
        if out is None or form == "missing":
            return merged
        for _ in range(2 if form == "twice" and out.size(0) == out.size(1) else 1):
            merged = merged @ out.transpose(0, 1)
            merged = merged if bias is None or form == "without_bias" else merged + bias
        return merged


def _rotate_mixed(layout: str, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of a layout by angles (T, d/2) that are laid out for the pairs of the other layout."""
    if layout == "half":
        a, b = x.chunk(2, -1)
        return x * cos.repeat_interleave(2, -1) + torch.cat((-b, a), -1) * sin.repeat_interleave(2, -1)
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * torch.cat((cos, cos), -1) + turned * torch.cat((sin, sin), -1)
