"""Which parameters reach the scores, though no gradient shows it: a softmax does not see what all keys share.

The bias of the keys is one, that of a norm of the keys another. Names do not tell; another function in the place of the
softmax does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.match.context import Context, held_still
from mhsa_cli.check.read.weight_names import is_bias

SOFTMAX = (torch.softmax, nn.functional.softmax, Tensor.softmax)
LEAST = 1e-12


def hidden_by_softmax(c: Context, names: Sequence[str]) -> set[str]:
    """Give those of a module's parameters that get a gradient once a sigmoid stands where the softmax stood.

    Where no softmax was called by its name, a bias whose gradient is there and zero counts as well.
    """
    module = c.built.module
    if module is None or not names:
        return set()
    parameters = dict(module.named_parameters())
    module.zero_grad(set_to_none=True)
    try:
        with torch.enable_grad(), held_still(c.quiet), _Sigmoid():
            y = c.built.run(c.plan, c.x).y
        y.square().sum().backward()  # type: ignore[no-untyped-call]
        gradients = {name: parameters[name].grad for name in names if name in parameters}
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
