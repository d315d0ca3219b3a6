"""Attention without projections, f(q, k, v, mask): weights are put before it, so that it is graded like the rest."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch

from mhsa_cli.check.call.block import Block
from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.call.name_lexicon import INPUTS, kind_of


class Core:
    """One head around a function of q, k and v: projections of its own, no output projection."""

    def __init__(self, call: Any, names: tuple[str, ...], d_model: int, numpy: bool) -> None:
        made: list[Any] = [torch.randn(d_model, d_model, dtype=torch.float64) for _ in range(3)]
        self.query, self.key, self.value = [m.numpy() for m in made] if numpy else made
        self._call, self._names = call, names

    def __call__(self, x: Any, **others: Any) -> Any:
        parts = {"q": self.query, "k": self.key, "v": self.value}
        weights = {name: parts[kind_of(name, INPUTS)] for name in self._names}
        given = {name: x @ (w.to(x.dtype) if isinstance(w, torch.Tensor) else w) for name, w in weights.items()}
        return self._call(**given, **others)


def as_core(block: Block, built: Built) -> Built:
    """Put projections before a function of q, k and v; anything else comes back as it is."""
    kinds = [kind_of(name, INPUTS) for name in block.plan.inputs]
    if built.slots or sorted(kinds) != ["k", "q", "v"] or not inspect.isroutine(built.thing):
        return built
    sizes = replace(built.sizes, n_heads=1)
    thing = Core(built.call, block.plan.inputs, sizes.d_model, built.numpy)
    block.plan = replace(block.plan, inputs=("x",))
    says = f"{block.source.name} of q, k and v"
    return replace(built, thing=thing, call=thing.__call__, sizes=sizes, says=says, supplied=dict(built.supplied))
