"""What was found out about a candidate, in words, and what its user said of it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from mhsa_cli.config.scalars import resolve
from mhsa_cli.core.check.context import Context
from mhsa_cli.core.check.lines import batch_axis_of
from mhsa_cli.core.check.sentences import HIDES
from mhsa_cli.errors import UsageError


def given_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE arguments of a constructor. Raises: UsageError."""
    found = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--with {argument}: wanted NAME=VALUE, a parameter of its constructor", "e.g. --with qkv_bias=true"
            )
        found[name] = resolve(value)
    return found


def found_words(c: Context) -> dict[str, str]:
    """Say what it is, how it is built and called, what its weights are, and how it is masked."""
    target, plan = c.candidate.source.target, c.plan
    if c.built.module is not None:
        kind = "torch module"
    elif inspect.isfunction(target):
        kind = f"{'NumPy' if c.built.numpy else 'torch'} function"
    else:
        kind = f"{'NumPy' if c.built.numpy else 'plain'} class"
    words = {"kind": kind, "built": c.built.says, "called": plan.says()}
    if c.match is not None:
        words["weights"] = c.match.layout.says
        roles = c.match.layout.roles
        words["bias"] = "none" if roles.q_bias is None and roles.out_bias is None else (
            "yes" if roles.q_bias is not None and (roles.out is None or roles.out_bias is not None) else
            "of q, k, v only" if roles.q_bias is not None else "of the output only")  # fmt: skip
        words["positions"] = {"none": "none inside"}.get(
            c.match.spec.rope, f"rope, {c.match.spec.rope.partition(':')[0]} pairs"
        )
    else:
        guess = c.reading
        words["weights"] = (
            f"{guess.says}, as far as can be told"
            if guess
            else "not understood: " + (", ".join(f"{s.path} {tuple(s.value.shape)}" for s in c.slots) or "none found")
        )
    if plan.mask is not None:
        words["mask"] = f"argument {plan.mask_name}, {plan.mask.meaning}"
    else:
        words["mask"] = HIDES.get(c.hides, "") or (
            "none" if not c.causal else "none that hides the future" if c.leaks else "causal inside"
        )
    y = c.run(c.x, weights=True)
    words["returns"] = "y and weights" if y.weights is not None else "y"
    if c.plan.time_first and (called := batch_axis_of(c.candidate.source.text, c.candidate.source.name)):
        words["right only if"] = f"x is (T, B, D): your code calls its first axis {called}"
    if c.built.dtype != torch.float64:
        words["precision"] = "float32: it does not take float64"
    return words
