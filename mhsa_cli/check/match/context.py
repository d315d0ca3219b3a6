"""An instance that can be called, and everything that the laws need to know about it."""

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
from mhsa_cli.check.call.call_form import CallForm, CallResult, positions_for
from mhsa_cli.check.call.instance import Instance, ProjectedFunction
from mhsa_cli.check.match.search import Match, random_input
from mhsa_cli.check.read.reference import ROPES
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.tensors import Slot, max_difference

SEED = 20


@dataclass(frozen=True)
class CallContext:
    """An instance with wide weights, `numbers` by path, and its call form, before it is matched with a variant.

    `dropout_disabled`: dropout that also drops in eval is switched off.
    """

    block: Block
    instance: Instance
    call_form: CallForm
    heads: int
    numbers: dict[str, Tensor]
    dropout_disabled: bool = False

    @property
    def slots(self) -> list[Slot]:
        return self.instance.slots

    @property
    def x(self) -> Tensor:
        """The input (B, T, D) that all laws start from."""
        s = self.instance.sizes
        return random_input(s.batch_size, s.seq_len, s.d_model, SEED).to(self.instance.dtype)

    def run(self, x: Tensor, instance: Instance | None = None, weights: bool = False) -> CallResult:
        """Call the block without gradient."""
        instance = instance or self.instance
        with torch.no_grad(), without_dropout(self.dropout_disabled):
            return instance.run(self.call_form, x.to(instance.dtype), weights)

    def y(self, x: Tensor, instance: Instance | None = None) -> Tensor:
        """Output for x in float64."""
        return self.run(x, instance).y.to(torch.float64)

    def repeat_difference(self, dropout_disabled: bool = False) -> float:
        """Difference between two calls on the same input."""
        with torch.no_grad(), without_dropout(dropout_disabled):
            a, b = (self.instance.run(self.call_form, self.x).y for _ in range(2))
        return max_difference(a, b)

    def rebuild(self, **sizes: Any) -> Instance:
        """Build another instance, with other sizes and with the same weights where the shapes allow."""
        if isinstance(self.instance.obj, ProjectedFunction):  # it has no sizes
            obj = copy.copy(self.instance.obj)
            instance = replace(self.instance, obj=obj, call=obj.__call__)
        else:
            instance = self.block.build(replace(self.instance.sizes, **sizes))
        instance.cast(self.instance.dtype)
        if instance.module is not None:
            instance.module.eval()
        for slot in instance.slots:
            old = self.numbers.get(slot.path)
            if old is not None and tuple(old.shape) == tuple(slot.value.shape):
                slot.write(old)
        return instance

    def positions(self, T: int) -> Tensor | None:
        """Positions (T,) that a call passes, or None."""
        if self.call_form.angles:
            return 2 * torch.arange(T)
        return positions_for(self.call_form, T, 1).reshape(-1)[:T] if self.call_form.positions else None


@dataclass(frozen=True)
class Context(CallContext):
    """All that is known of a block; made once by `analyse`.

    `causal`: later tokens must stay hidden; `nondeterminism`: why two calls differ, if they do; `match`: the variant
    that the block equals, without faults if it is right.
    """

    causal: bool = False
    match: Match | None = None
    nondeterminism: str = ""
    rejects_masks: bool = False
    padding: str = ""  # name of a padding mask, which is not passed
    likely_layout: Layout | None = None  # the layout that the block confirms, if no variant matches
    leaks: bool = False  # a later token changes an earlier output
    partial_mask: str = ""  # a key of `sentences.PARTIAL_MASKS`, if some later tokens are hidden and not all
    mask_gap: Mapping[str, int] = field(default_factory=dict)  # a visible token beyond a hidden later one

    @property
    def layout(self) -> Layout | None:
        """The layout of its weights, as far as it is known."""
        return self.match.layout if self.match is not None else self.likely_layout

    @property
    def right_rope(self) -> str:
        """The rotation of the right form: that of the match without its fault."""
        rope = self.match.spec.rope if self.match else "none"
        layout = rope.partition(":")[0]
        return layout if layout in ROPES else "interleaved" if rope == "none:ignored" else "none"


@contextmanager
def without_dropout(disabled: bool = True) -> Iterator[None]:
    """Switch all dropout off."""
    if not disabled:
        yield
        return

    def identity(x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x

    with (
        mock.patch.object(nn.functional, "dropout", identity),
        mock.patch.object(torch, "dropout", identity),
        mock.patch.object(nn.Dropout, "forward", lambda self, x: x),
    ):
        yield
