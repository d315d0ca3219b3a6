"""Laws about a module as a whole: saving, moving, precision, and what it refuses."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.check.laws.outcome import HOLDS, Outcome, close, fails, not_tested
from mhsa_cli.check.laws.outputs import reference_output
from mhsa_cli.check.library_errors import is_overflow
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.tensors import holds_mask_values, max_difference


def saved_and_loaded(c: Context) -> Outcome:
    """A state_dict loaded into a new module gives the same output."""
    one, other = c.rebuild(), c.block.build(c.instance.sizes)  # both new: a call may leave state behind
    other.cast(c.instance.dtype)
    other.obj.load_state_dict(one.obj.state_dict())
    other.obj.eval()
    return close(c.y(c.x, other), c.y(c.x, one), "differs")


def mask_moves(c: Context) -> Outcome:
    """A mask kept on the module moves with it: it is a buffer, or is moved in forward."""
    parts = c.instance.obj.named_modules()
    kept = [f"{name}.{key}".strip(".") for name, part in parts for key, value in vars(part).items()
            if isinstance(value, Tensor) and _is_mask(value)]  # fmt: skip
    if not kept:
        return HOLDS
    other = c.rebuild()
    nn.Module.to(other.obj, "meta")
    try:
        with torch.no_grad():
            other.run(c.call_form, torch.empty(c.x.shape, dtype=c.instance.dtype, device="meta"))
    except Exception:
        return fails("stays", names=kept)
    return HOLDS


def _is_mask(value: Tensor) -> bool:
    square = value.dim() > 1 and value.size(-1) == value.size(-2)
    return square and not value.requires_grad and holds_mask_values(value.to(torch.float64))


def heads_must_divide(c: Context) -> Outcome:
    """A width that the heads do not divide is refused, or loses nothing."""
    D, H = c.instance.sizes.d_model, c.instance.sizes.n_heads
    D += 2 if (D + 2) % H else 1
    if c.heads == 1 or not c.block.has_size("n_heads"):
        return not_tested("fixed")
    if c.block.takes_head_width:
        return not_tested("head_width_given")
    try:
        instance = c.rebuild(d_model=D)
        y = c.y(torch.ones(2, 3 if not c.block.built_for_one_length else c.x.size(1), D), instance)
    except (Exception, SystemExit):
        return HOLDS
    return HOLDS if y.size(-1) >= D else fails("narrower", D=D, H=H, columns=y.size(-1))


def too_long(c: Context) -> Outcome:
    """A sequence longer than the longest it was built for is refused, or processed correctly."""
    longest = c.instance.sizes.max_seq_len
    if not c.block.has_size("seq_len"):
        return not_tested("no_longest")
    if c.match is None or c.match.faults or c.leaks and c.causal:
        return not_tested("not_right")
    if c.call_form.positions or c.call_form.angles:
        return not_tested("positions_given")
    D = c.instance.sizes.d_model
    x = torch.ones(2, longest + 3, D).cumsum(1).sin() + torch.linspace(0, 1, D)
    try:
        y = c.y(x)
    except (Exception, SystemExit):
        return HOLDS
    long = close(y, reference_output(c, x))
    short = close(c.y(x[:, :longest]), reference_output(c, x[:, :longest]))
    if long.passed:
        return Outcome(True, long.max_difference)
    if not short.passed:
        return not_tested("not_right")
    return fails("differs", long.max_difference, T=longest + 3, longest=longest)


def half_precision(c: Context) -> Outcome:
    """bfloat16 and float16 give the same output within their precision."""
    y, most = c.y(c.x), 0.0
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        other = c.rebuild()
        other.cast(dtype)
        try:
            half = c.y(c.x, other)
        except Exception as error:
            message = (str(error).splitlines() or [type(error).__name__])[0]
            return fails("fill_overflows" if is_overflow(error) else "raised_in", dtype=name, message=message)
        off = max_difference(half, y) / max(1.0, float(y.abs().max()))  # 1 if a number is NaN
        most = max(most, off)
        if not math.isfinite(off) or off > 0.2:
            return fails("off" if math.isfinite(off) else "not_finite", off, dtype=name, off=off)
    return Outcome(True, most)
