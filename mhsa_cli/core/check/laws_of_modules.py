"""The laws that ask about a module as a whole: parameters, dropout, saving, precision, and what it refuses."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mhsa_cli.core.check.context import Context, held_still
from mhsa_cli.core.check.naming import is_bias, role_of
from mhsa_cli.core.check.seen import Seen, close
from mhsa_cli.core.check.tensors import worst

NO_MODULE = "it is no torch module"
DROPOUT = 0.4


def parameters_used(c: Context) -> Seen:
    """Ask that every parameter gets a gradient; a bias of the keys never does, as a softmax does not see it."""
    module = c.built.module
    if module is None:
        return Seen(None, None, NO_MODULE)
    module.zero_grad(set_to_none=True)
    with torch.enable_grad(), held_still(c.quiet):
        y = c.built.run(c.plan, c.x).y
    probe = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).sin().view(y.shape)
    (y * probe).sum().backward()  # type: ignore[no-untyped-call]
    unused = []
    for name, parameter in module.named_parameters():
        key_bias = is_bias(name) and (role_of(name.replace("norm", "")) == "k" or _is_key_bias(c, name))
        if not key_bias and (parameter.grad is None or float(parameter.grad.abs().max()) < 1e-12):
            unused.append(name)
    module.zero_grad(set_to_none=True)
    return Seen(not unused, None, f"no gradient reaches {', '.join(unused)}" if unused else "")


def _is_key_bias(c: Context, name: str) -> bool:
    path = c.match.layout.paths.get("k", "") if c.match else ""
    return bool(path) and name.endswith("bias") and name.rpartition(".")[0] == path.rpartition(".")[0].replace("#", "0")


def parameters_registered(c: Context) -> Seen:
    """Ask that `parameters()` knows every weight that is used."""
    module = c.built.module
    if module is None:
        return Seen(None, None, NO_MODULE)
    hidden = [slot.path for slot in c.slots if not slot.registered]
    return Seen(not hidden, None, f"parameters() does not know {', '.join(hidden)}" if hidden else "")


def dropout_only_in_training(c: Context) -> Seen:
    """Ask that dropout drops in training and rests in eval."""
    if c.built.module is None:
        return Seen(None, None, NO_MODULE)
    if c.quiet:
        return Seen(False, None, "it drops in eval as well")
    other = c.again(dropout=DROPOUT)
    module = other.module
    assert module is not None
    module.eval()
    seen = close(c.y(c.x, other), c.y(c.x), "dropout changes the output in eval")
    if not seen.passed:
        return seen
    module.train()
    drops = any(isinstance(part, nn.Dropout) and part.p > 0 for part in module.modules())
    moved = any(worst(c.y(c.x, other), c.y(c.x)) > 0 for _ in range(3))
    module.eval()
    if not moved:
        return Seen(False, None, "dropout never drops, not in training either") if drops else Seen(
            None, None, "it has no dropout")  # fmt: skip
    return Seen(True, seen.worst, "")


def weights_before_dropout(c: Context) -> Seen:
    """Ask that weights returned in training are those before dropout."""
    if c.built.module is None or c.run(c.x, weights=True).weights is None:
        return Seen(None, None, "it does not return its weights")
    if any(isinstance(part, nn.MultiheadAttention) for part in c.built.module.modules()):
        return Seen(None, None, "torch's own nn.MultiheadAttention returns them after dropout")
    other = c.again(dropout=DROPOUT)
    assert other.module is not None
    sums = []
    for training in (True, False):
        other.module.train(training)
        weights = c.run(c.x, other, weights=True).weights
        sums.append(torch.ones(1) if weights is None else weights.to(torch.float64).sum(-1))
    off, rested = (worst(s, torch.ones_like(s)) for s in sums)
    if off > 1e-3 >= rested:
        return Seen(False, off, "the weights returned in training are those after dropout: rows do not sum to one")
    return Seen(True, off, "")


def saved_and_loaded(c: Context) -> Seen:
    """Ask that a state_dict, loaded into a new module, brings the same output."""
    module = c.built.module
    if module is None:
        return Seen(None, None, NO_MODULE)
    other = c.candidate.build(c.built.sizes)
    assert other.module is not None
    other.cast(c.built.dtype)
    other.module.load_state_dict(module.state_dict())
    return close(c.y(c.x, other), c.y(c.x), "a module with the same state_dict gives another output")


def mask_moves(c: Context) -> Seen:
    """Ask that a mask kept on the module moves with it: it is a buffer, or is moved in forward."""
    module = c.built.module
    if module is None:
        return Seen(None, None, NO_MODULE)
    kept = [f"{name}.{key}".strip(".") for name, part in module.named_modules() for key, value in vars(part).items()
            if isinstance(value, Tensor) and _is_mask(value)]  # fmt: skip
    if not kept:
        return Seen(True, None, "")
    other = c.again()
    assert other.module is not None
    nn.Module.to(other.module, "meta")
    try:
        with torch.no_grad():
            other.run(c.plan, torch.empty(c.x.shape, dtype=c.built.dtype, device="meta"))
    except Exception:
        return Seen(False, None, f"{', '.join(kept)} stays on its device when the module moves")
    return Seen(True, None, "")


def _is_mask(value: Tensor) -> bool:
    if value.dim() < 2 or value.size(-1) != value.size(-2) or value.requires_grad:
        return False
    numbers = value.detach().to(torch.float64)
    return bool(((numbers == 0) | (numbers == 1) | (numbers < -1e3)).all())


def heads_must_divide(c: Context) -> Seen:
    """Ask that a width which the heads do not divide is refused, or loses nothing."""
    D, H = c.built.sizes.d_model + 2, c.built.sizes.n_heads
    if c.heads == 1 or D % H == 0 or not c.candidate.takes_sizes:
        return Seen(None, None, "its sizes are fixed")
    try:
        built = c.again(d_model=D)
        y = c.y(torch.ones(2, 3 if not c.candidate.built_for_one_length else c.x.size(1), D), built)
    except (Exception, SystemExit):
        return Seen(True, None, "")
    if y.size(-1) >= D:
        return Seen(True, None, "")
    return Seen(False, None, f"d_model={D} with {H} heads is accepted, and {y.size(-1)} columns come out")


def too_long(c: Context) -> Seen:
    """Ask that a row longer than the longest it was built for is refused, or answered rightly."""
    longest = c.built.sizes.max_seq_len
    if not c.candidate.takes_length:
        return Seen(None, None, "it has no longest row")
    D = c.built.sizes.d_model
    x = torch.ones(2, longest + 3, D).cumsum(1).sin() + torch.linspace(0, 1, D)
    if c.plan.positions:
        return Seen(None, None, "its positions are given")
    try:
        y = c.y(x)
    except (Exception, SystemExit):
        return Seen(True, None, "")
    if y.size(1) == longest + 3 and c.causal and worst(y[:, :longest], c.y(x[:, :longest])) < 1e-5:
        return Seen(True, None, "")
    if not c.causal:
        return Seen(None, None, "it has no mask")
    return Seen(False, None, f"T={longest + 3} with a longest row of {longest} is accepted, and answered wrongly")


def half_precision(c: Context) -> Seen:
    """Ask that bfloat16 and float16 give the same output, as closely as they can."""
    if c.built.module is None:
        return Seen(None, None, NO_MODULE)
    y, most = c.y(c.x), 0.0
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        other = c.again()
        assert other.module is not None
        other.cast(dtype)
        try:
            half = c.y(c.x, other)
        except Exception as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            if "overflow" in said:
                said = "the number that fills masked scores does not fit: use -inf, or torch.finfo(scores.dtype).min"
            return Seen(False, None, f"{name}: {said}")
        off = worst(half, y) / max(1.0, float(y.abs().max()))
        most = max(most, off)
        if not math.isfinite(off) or off > 0.2:
            return Seen(
                False, off, f"{name}: the output is {'not finite' if not math.isfinite(off) else f'off by {off:.2g}'}"
            )
    return Seen(True, most, "")
