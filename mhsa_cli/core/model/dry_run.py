"""One look at a custom block before it is trained: what it gives, whether it sees the future, whether it has maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mhsa_cli.errors import UsageError

ROWS = 2
LEAK = 1e-4  # of the largest output: above rounding in float32, far below one key's share of a softmax
DRAWN = 2000  # scores of a head that are looked at in training mode, at least
SUM = 1e-3  # what a row of weights may miss of 1

Call = Callable[[Tensor], tuple[Tensor, Tensor | None]]


class Sizes(NamedTuple):
    """What a block is built with."""

    d_model: int
    n_heads: int
    max_seq_len: int
    dropout: float
    bias: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """What a trial found: whether the block shows its weights, if not why, and whether it reads one length only."""

    shows: bool
    why: str = ""
    fixed: bool = False


def check_hint(target: str) -> str:
    """Say how to learn what is wrong with a block."""
    return f"what is wrong with it: mhsa check {target}"


def examine(target: str, block: nn.Module, call: Call, sizes: Sizes) -> Findings:
    """Call a block on random rows in eval and in training mode.

    Raises: UsageError if its output has another shape, is not finite, depends on later tokens (both in either mode) or
    has no gradient, or if it changes its own buffers.
    """
    hint, T = check_hint(target), sizes.max_seq_len
    generator = torch.Generator().manual_seed(0)
    x, other = (torch.randn(ROWS, T, sizes.d_model, generator=generator) for _ in range(2))
    with torch.no_grad():
        block.eval()
        y, weights = call(x)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            found = f"the shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"a {type(y).__name__}"
            raise UsageError(f"{target} gives {found} for an input of the shape {tuple(x.shape)}", hint)
        if y.dtype != x.dtype:
            raise UsageError(f"{target} gives {y.dtype} for an input of {x.dtype}: wanted the same", hint)
        if not bool(y.isfinite().all()):
            raise UsageError(f"{target} gives NaN or infinity for an ordinary input", hint)
        _check_causal(target, call, x, other, y)
        fixed = T > 1 and _is_fixed(call, x[:, :-1])
    _check_training(target, block, call, x, other)
    why = "it does not give its weights" if weights is None else _why_no_maps(weights, (ROWS, sizes.n_heads, T, T))
    return Findings(not why, why, fixed)


def _check_causal(target: str, call: Call, x: Tensor, other: Tensor, y: Tensor) -> None:
    """Change what comes later: nothing that came before may change."""
    T, limit = x.size(1), LEAK * max(1e-6, float(y.abs().max()))
    for cut in sorted({1, T // 2, T - 1} - {0, T}):
        changed = torch.cat([x[:, :cut], other[:, cut:]], dim=1)
        moved = (call(changed)[0] - y)[:, :cut].abs().amax((0, 2))
        if bool((moved > limit).any()):
            at = int((moved > limit).nonzero()[0])
            said = f"token {cut} changes what it says at token {at}"
            raise UsageError(f"{target} sees the future: {said}", f"why: mhsa check {target}")


def _is_fixed(call: Call, shorter: Tensor) -> bool:
    """Tell whether it reads rows of its full length only."""
    try:
        return call(shorter)[0].shape != shorter.shape
    except UsageError:
        return True


def _check_training(target: str, block: nn.Module, call: Call, x: Tensor, other: Tensor) -> None:
    """Call it in training mode, as every step will, with what it drops then."""
    before = {name: buffer.clone() for name, buffer in block.named_buffers()}
    block.train()
    y, _ = call(x.clone().requires_grad_())
    if not y.requires_grad:
        raise UsageError(f"{target} gives an output without a gradient: it cannot be trained", "use torch throughout")
    after = dict(block.named_buffers())
    for name, buffer in before.items():
        now = after.get(name)
        if now is not None and now.shape == buffer.shape and not torch.equal(now, buffer):
            said = f"{target} changes its buffer {name} in training"
            raise UsageError(said, "checkpoints keep parameters only, so a resumed run would be another one")
    with torch.no_grad():
        many, others = (t.repeat(-(-DRAWN // x.size(1) ** 2), 1, 1) for t in (x, other))  # more of what is dropped
        drawn = call(many)[0]
        if not bool(y.isfinite().all() and drawn.isfinite().all()):
            said = f"{target} gives NaN or infinity in training mode, where dropout drops"
            raise UsageError(said, "drop weights, after the softmax, not scores; no masked score may be dropped")
        if torch.equal(call(many)[0], drawn):  # the same is dropped again, so what moves the output is the input
            _check_causal(target, call, many, others, drawn)


def _why_no_maps(weights: Tensor, wanted: tuple[int, ...]) -> str:
    """Say why weights are no maps of heads; nothing if they are."""
    if tuple(weights.shape) != wanted:
        return f"its weights have the shape {tuple(weights.shape)}, wanted a map for each head: {wanted}"
    weights = weights.detach().float()
    if not bool(((weights.sum(-1) - 1).abs() <= SUM).all()) or bool((weights < -SUM).any()):
        return "the rows of its weights do not sum to 1"
    if bool((weights.triu(1).abs() > LEAK).any()):
        return "its weights lie on later tokens as well"
    return ""
