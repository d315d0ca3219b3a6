"""Causal attention as loops over rows, heads, queries and keys in float64, and other helpers of the tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from mhsa_cli.core.heads.capture import after_heads, attend
from mhsa_cli.core.model.transformer import TransformerLM

# No two sizes are equal anywhere in these tests: equal sizes hide swapped axes.
B, T, H, D_HEAD, MAX = 2, 7, 3, 5, 11
D = H * D_HEAD


def redraw(module: nn.Module, seed: int, std: float = 0.3) -> nn.Module:
    """Draw every parameter from N(0, std) and return the module. Narrow weights hide faults: the softmax is uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
    return module


def draw(*shape: int, seed: int = 1) -> Tensor:
    """Draw a standard normal tensor from a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def coins(*shape: int, seed: int = 2, p: float = 0.6) -> Tensor:
    """Draw a boolean tensor, True with probability p."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < p


def random_sizes(count: int, seed: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Give `count` sizes (B, T, H, d_head), the edges first, then random ones that are all different."""
    edges = [(2, 1, 3, 5), (2, 7, 1, 5), (2, 7, 3, 1), (1, 6, 2, 3), (3, 1, 1, 4), (4, 5, 1, 1), (3, 1, 1, 1)]
    yield from edges[:count]
    rng, made = random.Random(seed), len(edges)
    while made < count:
        sizes = (rng.randint(1, 4), rng.randint(1, 8), rng.randint(1, 5), rng.randint(1, 7))
        if len(set(sizes)) == 4 and sizes[2] * sizes[3] not in sizes[:2]:
            made += 1
            yield sizes


def array(tensor: Tensor) -> np.ndarray:
    """Copy a tensor into float64 (or boolean) numpy."""
    return tensor.detach().numpy().copy() if tensor.dtype == torch.bool else tensor.detach().double().numpy()


def loop_attention(block: nn.Module, x: Tensor, mask: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Compute what `block` should give on x (B, T, D), from its parameters alone: y (B, T, D), weights (B, H, T, T).

    `mask` must broadcast to (B, H, T, T). A query without a visible key has zero context.
    """
    rows, (n_rows, length, width) = array(x), x.shape
    heads = block.n_heads
    size = width // heads
    fused, out = array(block.qkv_proj.weight), array(block.out_proj.weight)
    fused_bias = np.zeros(3 * width) if block.qkv_proj.bias is None else array(block.qkv_proj.bias)
    out_bias = np.zeros(width) if block.out_proj.bias is None else array(block.out_proj.bias)
    allowed = np.ones((n_rows, heads, length, length), dtype=bool)
    if mask is not None:
        allowed &= np.broadcast_to(array(mask), allowed.shape)

    y = np.zeros((n_rows, length, width))
    weights = np.zeros((n_rows, heads, length, length))
    for b in range(n_rows):
        context = np.zeros((length, width))
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            # Rows of the fused map: all queries, then all keys, then all values; within each, head after head.
            query, key, value = (
                rows[b] @ fused[n * width : (n + 1) * width][part].T + fused_bias[n * width : (n + 1) * width][part]
                for n in range(3)
            )
            for t in range(length):
                seen = [s for s in range(t + 1) if allowed[b, h, t, s]]
                if not seen:
                    continue
                scores = [sum(float(query[t, i]) * float(key[s, i]) for i in range(size)) / size**0.5 for s in seen]
                raised = [np.exp(score - max(scores)) for score in scores]
                for s, power in zip(seen, raised, strict=True):
                    weights[b, h, t, s] = power / sum(raised)
                    context[t, part] += weights[b, h, t, s] * value[s]
        for t in range(length):
            y[b, t] = out @ context[t] + out_bias
    return y, weights


def worst(found: Tensor, wanted: np.ndarray | Tensor) -> float:
    """Return the largest absolute difference, NaN if either has one."""
    wanted = array(wanted) if isinstance(wanted, Tensor) else wanted
    assert tuple(found.shape) == wanted.shape, f"shape {tuple(found.shape)}, wanted {wanted.shape}"
    return float(np.abs(array(found) - wanted).max())


@torch.no_grad()
def acted(model: TransformerLM, ids: Tensor, act: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
    """Run ids (B, T) in eval mode with head outputs from `act`, a function of layer, A and V."""
    pos = model.pos[: ids.size(-1)]
    x = model.embed(ids, pos)
    for layer, block in enumerate(model.blocks):
        x = after_heads(block, x, act(layer, *attend(block, x, pos)))
    return model.lm_head(model.final_norm(x))
