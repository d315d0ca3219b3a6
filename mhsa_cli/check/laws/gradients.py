"""Which parameters no gradient reaches, and which of those move the output all the same."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.check.laws.softmax_invariant import hidden_by_softmax
from mhsa_cli.check.match.context import Context, held_still
from mhsa_cli.check.read.weight_names import is_bias, role_of
from mhsa_cli.check.tensors import worst


def without_gradient(c: Context) -> list[str]:
    """Name the parameters of a module that get no gradient.

    A bias of the keys never gets one, as a softmax does not see it; what is frozen and no projection is a table.
    """
    module = c.built.module
    if module is None:
        return []
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
        if not key_bias and not table and (parameter.grad is None or float(parameter.grad.abs().max()) < 1e-12):
            found.append(name)
    module.zero_grad(set_to_none=True)
    hidden = hidden_by_softmax(c, found)
    return [name for name in found if name not in hidden]


def _is_key_bias(c: Context, name: str) -> bool:
    path = c.match.layout.paths.get("k", "") if c.match else ""
    return bool(path) and name.endswith("bias") and name.rpartition(".")[0] == path.rpartition(".")[0].replace("#", "0")


def moves_output(c: Context, name: str) -> bool:
    """Tell whether other numbers in a parameter, named as `named_parameters` does, give another output."""
    assert c.built.module is not None
    parameter = dict(c.built.module.named_parameters())[name]
    before, kept = c.y(c.x), parameter.detach().clone()
    try:
        with torch.no_grad():
            parameter.copy_(_others(kept))
        after = c.y(c.x)
    finally:
        with torch.no_grad():
            parameter.copy_(kept)
    return worst(after, before) > 1e-9 * max(1.0, float(before.abs().nan_to_num().max()))


def _others(numbers: Tensor) -> Tensor:
    return -1.5 * numbers + torch.linspace(0.2, 0.9, numbers.numel(), dtype=numbers.dtype).view(numbers.shape)
