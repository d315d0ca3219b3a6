"""Linear attention: a feature map in place of the softmax, so that the past is one matrix.

out_q = sum_{k<=q} phi(q)·phi(k) v_k / sum_{k<=q} phi(q)·phi(k), with phi(x) = elu(x) + 1 + EPSILON.
Source: Katharopoulos et al. 2020.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mhsa_cli.core.model.kv_cache import LayerCache
from mhsa_cli.core.model.layers import product, slotwise

BLOCK = 64  # tokens; exact products within a block, running sums between blocks
EPSILON = 1e-6  # elu(-20) + 1 is 0 in float32, and a row of such features would divide 0 by 0


def feature_map(x: Tensor) -> Tensor:
    """Map queries or keys (..., H, T, d) to positive features, elementwise."""
    return slotwise(F.elu, x, stacked=x.dim() > 4) + (1 + EPSILON)


def linear_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """Compute the implied attention weights: q (..., Tq, d), k (..., Tk, d) to (..., Tq, Tk), rows sum to one.

    A row without any visible key gives zeros.
    """
    dtype = torch.promote_types(q.dtype, torch.float32)
    q, k = feature_map(q.to(dtype)), feature_map(k.to(dtype))
    scores = product(q.contiguous(), k.contiguous().transpose(-2, -1)).masked_fill(~mask, 0.0)
    return scores / scores.sum(-1, keepdim=True).clamp(min=torch.finfo(dtype).tiny)


def linear_attention(q: Tensor, k: Tensor, v: Tensor, cache: LayerCache | None = None) -> Tensor:
    """Attend causally in time and memory linear in T: q, k, v (..., H, T, d) to (..., H, T, d).

    A cache provides and receives the running sums: with T = 1 this is the recurrent form. Equal to
    `linear_weights(...) @ v` to rounding. Raises: ValueError if shapes do not fit.
    """
    if q.shape != k.shape or q.shape[:-1] != v.shape[:-1]:
        found = ", ".join(str(tuple(t.shape)) for t in (q, k, v))
        raise ValueError(f"wanted q, k and v of the same heads and tokens, (..., H, T, d), got {found}")
    given, dtype = q.dtype, torch.promote_types(q.dtype, torch.float32)  # half precision is too coarse for long sums
    q, k, v = feature_map(q.to(dtype)), feature_map(k.to(dtype)), v.to(dtype)
    state, total = (LayerCache() if cache is None else cache).sums(q, v)
    outputs = []
    for start in range(0, max(1, q.size(-2)), BLOCK):  # T = 0 is one empty block
        rows = slice(start, start + BLOCK)
        qb, kb, vb = (t[..., rows, :].contiguous() for t in (q, k, v))
        inner = product(qb, kb.transpose(-2, -1)).tril()  # (..., block, block)
        numerator, denominator = product(inner, vb), inner.sum(-1, keepdim=True)
        if state.dim() > 1:
            numerator = numerator + product(qb, state)
            denominator = denominator + product(qb, total)
        outputs.append(numerator / denominator)
        state = state + product(kb.transpose(-2, -1), vb)  # (..., d, d)
        total = total + kb.sum(-2).unsqueeze(-1)  # (..., d, 1)
    if cache is not None:
        cache.state = (state, total)
        cache.length += q.size(-2)
    return torch.cat(outputs, -2).to(given)


def unmasked_linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend to all keys in time linear in T: q, k, v (..., H, T, d) to (..., H, T, d).

    Equal to `linear_weights(...) @ v` with every key visible, to rounding.
    """
    given, dtype = q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k, v = feature_map(q.to(dtype)), feature_map(k.to(dtype)), v.to(dtype)
    state = product(k.transpose(-2, -1).contiguous(), v.contiguous())  # (..., d, d)
    total = k.sum(-2).unsqueeze(-1)  # (..., d, 1)
    return (product(q.contiguous(), state) / product(q.contiguous(), total)).to(given)
