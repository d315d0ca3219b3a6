"""The backward pass of autograd from a given gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def vector_jacobian(output: Tensor, d_output: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute d loss / d leaf of every leaf from d loss / d output, zeros where the output does not depend on it."""
    # Not by `grad_outputs`, with which torch imports sympy: 0.5 s. The gradient of this sum is 1 * d_output exactly.
    with torch.enable_grad():
        loss = torch.dot(output.flatten(), d_output.flatten())
    return torch.autograd.grad(loss, leaves, materialize_grads=True)
