"""The laws that ask about a module as a whole: saving, moving, precision, and what it refuses."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.foreign_words import is_overflow
from mhsa_cli.check.laws.outputs import right_output
from mhsa_cli.check.laws.seen import HOLDS, Seen, close, fails, not_asked
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.tensors import worst


def saved_and_loaded(c: Context) -> Seen:
    """Ask that a state_dict, loaded into a new module, brings the same output."""
    one, other = c.again(), c.block.build(c.built.sizes)  # both new: a call may leave something behind
    other.cast(c.built.dtype)
    other.thing.load_state_dict(one.thing.state_dict())
    other.thing.eval()
    return close(c.y(c.x, other), c.y(c.x, one), "differs")


def mask_moves(c: Context) -> Seen:
    """Ask that a mask kept on the module moves with it: it is a buffer, or is moved in forward."""
    parts = c.built.thing.named_modules()
    kept = [f"{name}.{key}".strip(".") for name, part in parts for key, value in vars(part).items()
            if isinstance(value, Tensor) and _is_mask(value)]  # fmt: skip
    if not kept:
        return HOLDS
    other = c.again()
    nn.Module.to(other.thing, "meta")
    try:
        with torch.no_grad():
            other.run(c.plan, torch.empty(c.x.shape, dtype=c.built.dtype, device="meta"))
    except Exception:
        return fails("stays", names=kept)
    return HOLDS


def _is_mask(value: Tensor) -> bool:
    if value.dim() < 2 or value.size(-1) != value.size(-2) or value.requires_grad:
        return False
    numbers = value.detach().to(torch.float64)
    return bool(((numbers == 0) | (numbers == 1) | (numbers < -1e3)).all())


def heads_must_divide(c: Context) -> Seen:
    """Ask that a width which the heads do not divide is refused, or loses nothing."""
    D, H = c.built.sizes.d_model, c.built.sizes.n_heads
    D += 2 if (D + 2) % H else 1
    if c.heads == 1 or not c.block.takes("n_heads"):
        return not_asked("fixed")
    if c.block.takes_head_width:
        return not_asked("head_width_given")
    try:
        built = c.again(d_model=D)
        y = c.y(torch.ones(2, 3 if not c.block.built_for_one_length else c.x.size(1), D), built)
    except (Exception, SystemExit):
        return HOLDS
    return HOLDS if y.size(-1) >= D else fails("narrower", D=D, H=H, columns=y.size(-1))


def too_long(c: Context) -> Seen:
    """Ask that a row longer than the longest it was built for is refused, or answered rightly."""
    longest = c.built.sizes.max_seq_len
    if not c.block.takes("seq_len"):
        return not_asked("no_longest")
    if c.match is None or c.match.faults or c.leaks and c.causal:
        return not_asked("not_right")
    if c.plan.positions or c.plan.angles:
        return not_asked("positions_given")
    D = c.built.sizes.d_model
    x = torch.ones(2, longest + 3, D).cumsum(1).sin() + torch.linspace(0, 1, D)
    try:
        y = c.y(x)
    except (Exception, SystemExit):
        return HOLDS
    long = close(y, right_output(c, x))
    short = close(c.y(x[:, :longest]), right_output(c, x[:, :longest]))
    if long.passed:
        return Seen(True, long.worst)
    if not short.passed:
        return not_asked("not_right")
    return fails("differs", long.worst, T=longest + 3, longest=longest)


def half_precision(c: Context) -> Seen:
    """Ask that bfloat16 and float16 give the same output, as closely as they can."""
    y, most = c.y(c.x), 0.0
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        other = c.again()
        other.cast(dtype)
        try:
            half = c.y(c.x, other)
        except Exception as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            return fails("fill_overflows" if is_overflow(error) else "raised_in", dtype=name, said=said)
        off = worst(half, y) / max(1.0, float(y.abs().max()))
        most = max(most, off)
        if not math.isfinite(off) or off > 0.2:
            return fails("off" if math.isfinite(off) else "not_finite", off, dtype=name, off=off)
    return Seen(True, most)
