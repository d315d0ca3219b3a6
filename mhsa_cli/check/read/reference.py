"""Reference attention in float64, and the wrong forms of each stage that people write.

A `Spec` names one form per stage. Sizes: B batch, T tokens, D = d_model, H heads, G key/value heads, d = d_head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.core.model.positions import RopePositions


@dataclass(frozen=True, slots=True)
class Roles:
    """The weights of a block by role: y = x W^T + b.

    Shapes: q (H, d, D), k and v (G, d, D), their biases without the D; out (D_out, H*d), or None.
    `norm` is a LayerNorm in the block: (weight, bias, eps).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_bias: Tensor | None = None
    k_bias: Tensor | None = None
    v_bias: Tensor | None = None
    out: Tensor | None = None
    out_bias: Tensor | None = None
    norm: tuple[Tensor, Tensor | None, float] | None = None

    @property
    def n_heads(self) -> int:
        return self.q.size(0)


class Spec(NamedTuple):
    """One form for every stage, in order of computation."""

    frame: str = "plain"
    project: str = "right"
    split: str = "right"
    rope: str = "none"
    scale: str = "d_head"
    mask: str = "causal"
    fill: str = "inf"
    softmax: str = "keys"
    values: str = "right"
    merge: str = "right"
    out: str = "right"


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
THETA = 10000.0
WEIGHT_STAGES = 8  # the attention weights depend on the stages up to the softmax only
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
            "after": 1.0,  # the weights are divided instead
        }
        self._cache: dict[object, Tensor] = {}

    def output(self, spec: Spec) -> Tensor:
        """Compute the output (B, T, D_out); a wrong form may give another shape."""
        merged = self._cached(("merged", *spec[:10]), lambda: self.merge(spec.merge, self._context(spec)))
        y = self.finish(spec.frame, self._out(spec.out, merged))
        return y.transpose(1, 2) if spec.out == "transposed" else y

    def outputs(self, specs: list[Spec]) -> Tensor:
        """Compute many specs at once that differ only up to the weights: (N, B, T, D_out)."""
        first, N = specs[0], len(specs)

        def stacked() -> Tensor:
            """All specs as one long head for each (b, h), which multiplies faster: (B, H, N * T, T)."""
            return torch.stack([self._weights(spec) for spec in specs], dim=2).flatten(2, 3)

        key = ("stacked", tuple(spec[:WEIGHT_STAGES] for spec in specs))
        weights = self._cached(key, stacked)  # cached once: these are the largest tensors
        context = (weights @ self._heads(first, "v")).unflatten(2, (N, -1))
        context = context.movedim(2, 0).flatten(0, 1)
        y = self._out(first.out, self.merge(first.merge, context))
        return self.finish(first.frame, y.view(N, self.B, *y.shape[1:]))

    def finish(self, frame: str, y: Tensor) -> Tensor:
        """Add the residual, then a norm, as the frame says."""
        if frame.endswith("residual") and y.shape[-3:] == self.x.shape:
            y = self.x + y
        return self._norm(y) if frame.startswith("post-norm") else y

    def weights(self, spec: Spec) -> Tensor:
        """Compute the attention weights (B, H, T, T)."""
        return self._cached(("weights", *spec[:WEIGHT_STAGES]), lambda: self._weights(spec))

    def _cached(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _norm(self, x: Tensor) -> Tensor:
        if self.roles.norm is None:
            return x
        weight, bias, eps = self.roles.norm
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps) if x.size(-1) == len(weight) else x

    def _flat(self, spec: Spec, role: str) -> Tensor:
        """Project to queries, keys or values: (B, T, heads * d)."""
        x = self._norm(self.x) if spec.frame.startswith("pre-norm") else self.x
        if spec.project == "value_unprojected" and role == "v":
            return x
        used = PROJECTIONS.get(spec.project, "qkv")["qkv".index(role)]
        weight, bias = getattr(self.roles, used), getattr(self.roles, f"{used}_bias")
        y = x @ weight.flatten(0, 1).transpose(0, 1)
        return y if bias is None else y + bias.flatten()

    def _heads(self, spec: Spec, role: str) -> Tensor:
        """Split queries, keys or values into heads: (B, H, T, d)."""
        return self._cached(("heads", role, *spec[:4]), lambda: self._split(spec, role))

    def _split(self, spec: Spec, role: str) -> Tensor:
        flat = self._flat(spec, role)
        n = flat.size(-1) // self.d
        if spec.split == "by_view":
            x = flat.reshape(self.B, n, self.T, self.d)
        elif spec.split == "features_first_k" and role == "k":
            x = flat.view(self.B, self.T, self.d, n).permute(0, 3, 1, 2)
        else:
            x = flat.view(self.B, self.T, n, self.d).transpose(1, 2)
        if n < self.H:
            tiled = spec.split == "groups_tiled"
            x = x.repeat(1, self.H // n, 1, 1) if tiled else x.repeat_interleave(self.H // n, dim=1)
        return self._rotate(spec.rope, x, role)

    def _rotate(self, rope: str, x: Tensor, role: str) -> Tensor:
        """Rotate by position; `rope` is "layout" or "layout:fault"."""
        layout, _, fault = rope.partition(":")
        if layout == "none" or (role == "v" and fault != "on_value") or (role == "k" and fault == "only_query"):
            return x
        if role == "q" and fault == "only_key":
            return x
        d, positions = self.d, self.positions.to(torch.float64)
        if role == "k":
            shifts = {"key_after": positions + 1, "key_before": positions - 1, "key_rolled": positions.roll(1)}
            positions = shifts.get(fault, positions)
            layout = {"half": "interleaved"}.get(layout, "half") if fault == "pairs_differ" else layout
        pairs = torch.arange(d // 2, dtype=torch.float64)
        exponent = {"exponent_next": 2 * (pairs + 1) / d, "exponent_half": pairs / d, "exponent_single": 4 * pairs / d,
                    "exponent_d_model": 2 * pairs / self.D, "exponent_before": 2 * (pairs - 1) / d}  # fmt: skip
        rate = THETA ** -exponent.get(fault, 2 * pairs / d)
        angle = positions.unsqueeze(1) * rate * (-1 if fault == "backwards" else 1)
        cos, sin = angle.cos(), angle.sin()
        if fault == "angles_mixed":
            return _rotate_mixed(layout, x, cos, sin)
        return RopePositions(1, d, layout=layout).turn_by(x, cos, sin)

    def _scores(self, spec: Spec) -> Tensor:
        def make() -> Tensor:
            q, k = self._heads(spec, "q"), self._heads(spec, "k")
            reshaped = spec.split == "key_reshaped"
            return q @ (k.reshape(self.B, self.H, self.d, self.T) if reshaped else k.transpose(-2, -1))

        scores = self._cached(("scores", *spec[:4]), make)
        if spec.scale.startswith("x"):
            return scores * float(spec.scale[1:])
        return scores * self.factors[spec.scale]

    def _allowed(self, mask: str) -> Tensor:
        ones = torch.ones(self.T, self.T, dtype=torch.bool)
        forms = {"none": ones, "inverted": ones.triu(1), "transposed": ones.triu(), "sees_next": ones.tril(1)}
        return ones.tril(-1) if mask == "hides_self" else forms.get(mask, ones.tril())

    def _weights(self, spec: Spec) -> Tensor:
        scores, allowed = self._scores(spec), self._allowed(spec.mask)
        if spec.mask != "after":
            fill = scores + ADDED[spec.fill] if spec.fill in ADDED else FILLS[spec.fill]
            scores = torch.where(allowed, scores, fill)
        axis = {"keys": -1, "queries": -2, "heads": 1, "batch": 0, "twice": -1}.get(spec.softmax)
        weights = scores if axis is None else scores.softmax(axis)
        if spec.softmax.startswith("sigmoid"):
            weights = (scores - (math.log(self.T) if spec.softmax == "sigmoid_less_log" else 0)).sigmoid()
        if spec.softmax in ("all of a head", "everything"):
            first = 2 if spec.softmax == "all of a head" else 0
            weights = scores.flatten(first).softmax(-1).view(scores.shape)
        weights = weights.softmax(-1) if spec.softmax == "twice" else weights
        weights = weights * allowed if spec.mask == "after" else weights
        return weights / math.sqrt(self.d) if spec.scale == "after" else weights

    def _context(self, spec: Spec) -> Tensor:
        weights, v = self.weights(spec), self._heads(spec, "v")
        return (weights.transpose(-2, -1) if spec.values == "transposed" else weights) @ v  # (B, H, T, d)

    def merge(self, form: str, context: Tensor) -> Tensor:
        """Merge the heads' contexts (B, H, T, d) to (B, T, H * d)."""
        B, H, T, d = context.shape
        if form == "by_view":
            return context.reshape(B, T, H * d)
        if form == "features_first":
            return context.permute(0, 2, 3, 1).reshape(B, T, H * d)
        if form == "folded_as_heads_first":  # folded (B, H), unfolded (H, B)
            context = context.reshape(H, B, T, d).transpose(0, 1)
        if form == "folded_as_batch_first":  # folded (H, B), unfolded (B, H)
            context = context.transpose(0, 1).reshape(B, H, T, d)
        return context.transpose(1, 2).reshape(B, T, H * d)

    def _out(self, form: str, merged: Tensor) -> Tensor:
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
