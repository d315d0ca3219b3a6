"""Count the heads that an instance uses, by the shapes of its attention weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.call.call_form import CallForm
from mhsa_cli.check.call.instance import Instance
from mhsa_cli.check.locate.syntax import KERNEL


class _Maps(TorchFunctionMode):
    """Counts the attention maps (T, T) that a softmax or a kernel makes."""

    def __init__(self, T: int) -> None:
        super().__init__()
        self.T, self.count = T, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name == KERNEL and args:
            self.count += math.prod(args[0].shape[:-2])
        elif name == "softmax" and isinstance(result, Tensor) and result.shape[-2:] == (self.T, self.T):
            self.count += math.prod(result.shape[:-2])
        return result


def heads_used(instance: Instance, call_form: CallForm, x: Tensor) -> int | None:
    """Count the heads of an instance by the weights that it returns, else by its softmax; None if neither shows more
    than one.
    """
    maps = _Maps(instance.sizes.seq_len)
    with torch.no_grad(), maps:
        result = instance.run(call_form, x, weights=True)
    heads = maps.count // len(x) if result.weights is None else result.weights.size(1)
    return heads if heads > 1 else None
