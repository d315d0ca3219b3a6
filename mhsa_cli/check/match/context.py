"""What the laws are asked of: a block as built and called, and what was understood of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from mhsa_cli.check.call.block import Block
from mhsa_cli.check.call.call_plan import Answer, Plan, positions_of
from mhsa_cli.check.call.core_function import Core
from mhsa_cli.check.call.instance import Built
from mhsa_cli.check.match.search_case import Match, inputs
from mhsa_cli.check.read.reference import ROPES
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import Slot, worst

SEED = 20


@dataclass(frozen=True)
class Called:
    """A block with wide weights, `numbers` by their paths, and a way to call it; which variant it is, is not known yet.

    `quiet`: dropout that never rests is held still.
    """

    block: Block
    built: Built
    plan: Plan
    heads: int
    numbers: dict[str, Tensor]
    quiet: bool = False

    @property
    def slots(self) -> list[Slot]:
        """List the block's weights."""
        return self.built.slots

    @property
    def x(self) -> Tensor:
        """Draw the input (B, T, D) that all laws begin with."""
        s = self.built.sizes
        return inputs(s.batch_size, s.seq_len, s.d_model, SEED).to(self.built.dtype)

    def run(self, x: Tensor, built: Built | None = None, weights: bool = False) -> Answer:
        """Call the block without gradient."""
        built = built or self.built
        with torch.no_grad(), held_still(self.quiet):
            return built.run(self.plan, x.to(built.dtype), weights)

    def y(self, x: Tensor, built: Built | None = None) -> Tensor:
        """Give the output for x, in float64."""
        return self.run(x, built).y.to(torch.float64)

    def unlike_itself(self, still: bool = False) -> float:
        """Give how far two calls on one input are apart; `still` holds dropout that never rests."""
        with torch.no_grad(), held_still(still):
            a, b = (self.built.run(self.plan, self.x).y for _ in range(2))
        return worst(a, b)

    def again(self, **changes: Any) -> Built:
        """Build it once more with other sizes, with the same numbers where the shapes allow; a core has no sizes."""
        if isinstance(self.built.thing, Core):
            thing = copy.copy(self.built.thing)
            built = replace(self.built, thing=thing, call=thing.__call__)
        else:
            built = self.block.build(replace(self.built.sizes, **changes))
        built.cast(self.built.dtype)
        if built.module is not None:
            built.module.eval()
        for slot in built.slots:
            old = self.numbers.get(slot.path)
            if old is not None and tuple(old.shape) == tuple(slot.value.shape):
                slot.write(old)
        return built

    def positions(self, T: int) -> Tensor | None:
        """Give the positions (T,) of a call, or None where it counts by itself."""
        if self.plan.angles:
            return 2 * torch.arange(T)
        return positions_of(self.plan, T, 1).reshape(-1)[:T] if self.plan.positions else None


@dataclass(frozen=True)
class Context(Called):
    """All that was understood of a block, which `understand` puts together once.

    `causal` says whether later tokens must stay unseen, `noise` why two calls differ if they do; `match` is the variant
    that the block equals, if one was found: it has no faults if it is right.
    """

    causal: bool = False
    match: Match | None = None
    noise: str = ""
    mask_raises: bool = False
    padding: str = ""  # the name of a mask that says which tokens are there: it is not given
    guess: Layout | None = None  # the reading that the block bears out, where no variant matches
    leaks: bool = False  # a later token changes an earlier output
    hides: str = ""  # which tokens it hides, if some later ones and not all: a key of `sentences.HIDES`
    hole: Mapping[str, int] = field(default_factory=dict)  # a later token that a token sees past one that it does not

    @property
    def reading(self) -> Layout | None:
        """Give the reading of its weights, as far as it is known."""
        return self.match.layout if self.match is not None else self.guess

    @property
    def right_rope(self) -> str:
        """Say how a right one would rotate: as this one does, its fault left out."""
        rope = self.match.spec.rope if self.match else "none"
        layout = rope.partition(":")[0]
        return layout if layout in ROPES else "interleaved" if rope == "none:ignored" else "none"


@contextmanager
def held_still(quiet: bool = True) -> Iterator[None]:
    """Let no dropout drop."""
    if not quiet:
        yield
        return

    def still(x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x

    with (
        mock.patch.object(nn.functional, "dropout", still),
        mock.patch.object(torch, "dropout", still),
        mock.patch.object(nn.Dropout, "forward", lambda self, x: x),
    ):
        yield
