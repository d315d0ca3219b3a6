"""Laws about gradients: they reach every parameter, are finite, and allow a second step.

A softmax is invariant to what all keys share, so some parameters influence the scores without a gradient, such as the
bias of the keys or of a norm of the keys. Names do not identify them; another function in place of the softmax does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.call.instance import Instance
from mhsa_cli.check.laws.outcome import HOLDS, Outcome, fails, not_tested
from mhsa_cli.check.library_errors import is_overwritten, is_second_backward
from mhsa_cli.check.match.context import DROPOUT, Context, without_dropout
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import max_difference, scale_of

SOFTMAX = (torch.softmax, nn.functional.softmax, Tensor.softmax)
LEAST = 1e-12


def parameters_used(c: Context) -> Outcome:
    """Every parameter gets a gradient, a bias of the keys excepted."""
    if not list(c.instance.obj.parameters()):
        return not_tested("no_parameters")
    unused = without_gradient(c)
    return fails("no_gradient", names=unused) if unused else HOLDS


def parameters_registered(c: Context) -> Outcome:
    """`parameters()` lists every weight in use."""
    hidden = [slot.path for slot in c.slots if not slot.registered]
    return fails("unknown", names=hidden) if hidden else HOLDS


def gradients_finite(c: Context) -> Outcome:
    """The gradient of the input is finite."""
    if c.instance.numpy:
        return not_tested("numpy")
    x = c.x.requires_grad_()
    try:
        _backward(c, c.instance, x)
    except RuntimeError as error:
        if is_overwritten(error):
            return fails("overwritten")
        if not is_second_backward(error):
            raise
        _backward(c, c.rebuild(), x)  # a key/value cache keeps the graph of an earlier law
    if _overwritten_in_training(c):
        return fails("overwritten")
    return HOLDS if x.grad is not None and bool(x.grad.isfinite().all()) else fails("not_finite")


def _overwritten_in_training(c: Context) -> bool:
    """Whether a dropout changes in place what the backward pass needs."""
    try:
        other = c.rebuild(dropout=DROPOUT)
        if other.module is not None:
            other.module.train()
            _backward(c, other, c.x.requires_grad_())
    except (Exception, SystemExit) as error:
        return is_overwritten(error)
    return False


def second_step(c: Context) -> Outcome:
    """Training for more than one step is possible."""
    if c.instance.numpy:
        return not_tested("numpy")
    instance = c.rebuild()
    for step in range(2):
        try:
            _backward(c, instance, c.x.requires_grad_())
        except RuntimeError as error:
            return fails("kept_graph") if step and is_second_backward(error) else not_tested("no_gradient")
    return HOLDS


def _backward(c: Context, instance: Instance, x: Tensor) -> None:
    instance.run(c.call_form, x).y.square().sum().backward()  # type: ignore[no-untyped-call]


def without_gradient(c: Context) -> list[str]:
    """List the parameters of a module that get no gradient but should.

    A bias of the keys never gets one, as the softmax is invariant to it; a frozen tensor that is no projection is a
    table.
    """
    module = c.instance.obj
    module.zero_grad(set_to_none=True)
    with torch.enable_grad(), without_dropout(c.dropout_disabled):
        y = c.instance.run(c.call_form, c.x).y
    if y.requires_grad:
        probe = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).sin().view(y.shape)
        (y * probe).sum().backward()  # type: ignore[no-untyped-call]
    found = []
    for name, parameter in module.named_parameters():
        key_bias = is_bias(name) and (role_of(name.replace("norm", "")) == "k" or _is_key_bias(c, name))
        table = not parameter.requires_grad and not role_of(name)
        if not key_bias and not table and (parameter.grad is None or float(parameter.grad.abs().max()) < LEAST):
            found.append(name)
    module.zero_grad(set_to_none=True)
    hidden = _hidden_by_softmax(c, module, found) if found else set()
    return [name for name in found if name not in hidden]


def _is_key_bias(c: Context, name: str) -> bool:
    path = c.match.layout.paths.get("k", "") if c.match else ""
    return bool(path) and name.endswith("bias") and name.rpartition(".")[0] == path.rpartition(".")[0].replace("#", "0")


def moves_output(c: Context, name: str) -> bool:
    """Whether a parameter, named as in `named_parameters`, influences the output."""
    parameter = c.instance.obj.get_parameter(name)
    before, old = c.y(c.x), parameter.detach().clone()
    try:
        with torch.no_grad():
            parameter.copy_(-1.5 * old + torch.linspace(0.2, 0.9, old.numel(), dtype=old.dtype).view(old.shape))
        after = c.y(c.x)
    finally:
        with torch.no_grad():
            parameter.copy_(old)
    return max_difference(after, before) > 1e-9 * scale_of(before)


def _hidden_by_softmax(c: Context, module: nn.Module, names: Sequence[str]) -> set[str]:
    """Select the parameters that get a gradient once a sigmoid replaces the softmax.

    If no softmax was called by name, a bias with a zero gradient counts as well.
    """
    parameters = dict(module.named_parameters())
    try:
        with torch.enable_grad(), without_dropout(c.dropout_disabled), _Sigmoid():
            y = c.instance.run(c.call_form, c.x).y
        y.square().sum().backward()  # type: ignore[no-untyped-call]
        gradients = {name: parameters[name].grad for name in names}
    except (Exception, SystemExit):
        return set()  # not known
    finally:
        module.zero_grad(set_to_none=True)
    reached = {name: grad for name, grad in gradients.items() if grad is not None}
    return {name for name, grad in reached.items() if float(grad.abs().max()) > LEAST or is_bias(name)}


class _Sigmoid(TorchFunctionMode):
    """Replaces every softmax by a sigmoid, also inside torch's own attention."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        kwargs = kwargs or {}
        if any(func is one for one in SOFTMAX):
            return (args[0] if args else kwargs["input"]).sigmoid()
        if func is nn.functional.scaled_dot_product_attention:
            return _attend(*args[:3], **{k: v for k, v in kwargs.items() if k in ("query", "key", "value")})
        return func(*args, **kwargs)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend with a sigmoid and without a mask: q, k, v (..., T, d), k and v maybe with fewer heads."""
    if key.dim() > 2 and key.size(-3) != query.size(-3):
        times = query.size(-3) // key.size(-3)
        key, value = (t.repeat_interleave(times, -3) for t in (key, value))
    return (query @ key.transpose(-2, -1) / query.size(-1) ** 0.5).sigmoid() @ value
