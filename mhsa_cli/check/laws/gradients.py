"""The laws that ask about gradients: which parameters they reach, are they finite, is there a next step.

A softmax does not see what all keys share, so that some parameters reach the scores though no gradient shows it: the
bias of the keys is one, that of a norm of the keys another. Names do not tell; another function in its place does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.foreign_words import is_second_backward
from mhsa_cli.check.laws.seen import HOLDS, Seen, fails, not_asked
from mhsa_cli.check.match.context import Context, held_still
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.tensors import worst

SOFTMAX = (torch.softmax, nn.functional.softmax, Tensor.softmax)
LEAST = 1e-12


def parameters_used(c: Context) -> Seen:
    """Ask that every parameter gets a gradient; a bias of the keys never does, as a softmax does not see it."""
    if not list(c.built.thing.parameters()):
        return not_asked("no_parameters")
    unused = without_gradient(c)
    return fails("no_gradient", names=unused) if unused else HOLDS


def parameters_registered(c: Context) -> Seen:
    """Ask that `parameters()` knows every weight that is used."""
    hidden = [slot.path for slot in c.slots if not slot.registered]
    return fails("unknown", names=hidden) if hidden else HOLDS


def gradients_finite(c: Context) -> Seen:
    """Ask for a finite gradient at every input."""
    if c.built.numpy:
        return not_asked("numpy")
    x = c.x.requires_grad_()
    try:
        _backward(c, c.built, x)
    except RuntimeError as error:
        if not is_second_backward(error):
            raise
        _backward(c, c.again(), x)  # a cache for generating holds on to the graph of an earlier law
    return HOLDS if x.grad is not None and bool(x.grad.isfinite().all()) else fails("not_finite")


def second_step(c: Context) -> Seen:
    """Ask that it can be trained for more than one step."""
    if c.built.numpy:
        return not_asked("numpy")
    built = c.again()
    for step in range(2):
        try:
            _backward(c, built, c.x.requires_grad_())
        except RuntimeError as error:
            return fails("kept_graph") if step and is_second_backward(error) else not_asked("no_gradient")
    return HOLDS


def _backward(c: Context, built: Built, x: Tensor) -> None:
    built.run(c.plan, x).y.square().sum().backward()  # type: ignore[no-untyped-call]


def without_gradient(c: Context) -> list[str]:
    """Name the parameters of a module that get no gradient.

    A bias of the keys never gets one, as a softmax does not see it; what is frozen and no projection is a table.
    """
    module = c.built.thing
    module.zero_grad(set_to_none=True)
    with torch.enable_grad(), held_still(c.quiet):
        y = c.built.run(c.plan, c.x).y
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
    """Tell whether other numbers in a parameter, named as `named_parameters` does, give another output."""
    parameter = c.built.thing.get_parameter(name)
    before, kept = c.y(c.x), parameter.detach().clone()
    try:
        with torch.no_grad():
            parameter.copy_(-1.5 * kept + torch.linspace(0.2, 0.9, kept.numel(), dtype=kept.dtype).view(kept.shape))
        after = c.y(c.x)
    finally:
        with torch.no_grad():
            parameter.copy_(kept)
    return worst(after, before) > 1e-9 * max(1.0, float(before.abs().nan_to_num().max()))


def _hidden_by_softmax(c: Context, module: nn.Module, names: Sequence[str]) -> set[str]:
    """Give those of a module's parameters that get a gradient once a sigmoid stands where the softmax stood.

    Where no softmax was called by its name, a bias whose gradient is there and zero counts as well.
    """
    parameters = dict(module.named_parameters())
    try:
        with torch.enable_grad(), held_still(c.quiet), _Sigmoid():
            y = c.built.run(c.plan, c.x).y
        y.square().sum().backward()  # type: ignore[no-untyped-call]
        gradients = {name: parameters[name].grad for name in names}
    except (Exception, SystemExit):
        return set()  # it cannot be told
    finally:
        module.zero_grad(set_to_none=True)
    reached = {name: grad for name, grad in gradients.items() if grad is not None}
    return {name for name, grad in reached.items() if float(grad.abs().max()) > LEAST or is_bias(name)}


class _Sigmoid(TorchFunctionMode):
    """Puts a sigmoid in the place of every softmax, the one inside torch's own attention among them."""

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
    """Attend without mask and softmax: q, k, v (..., T, d), the heads of k and v maybe fewer."""
    if key.dim() > 2 and key.size(-3) != query.size(-3):
        times = query.size(-3) // key.size(-3)
        key, value = (t.repeat_interleave(times, -3) for t in (key, value))
    return (query @ key.transpose(-2, -1) / query.size(-1) ** 0.5).sigmoid() @ value
