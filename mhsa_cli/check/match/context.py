"""An instance that can be called, and everything that the laws need to know about it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mhsa_cli.check.call.block import Block
from mhsa_cli.check.call.call_form import CallForm, CallResult, positions_for, untested
from mhsa_cli.check.call.instance import Instance, ProjectedFunction
from mhsa_cli.check.locate.anatomy import Anatomy
from mhsa_cli.check.locate.executed import Runs, executed_flow
from mhsa_cli.check.locate.flow import flow_of
from mhsa_cli.check.match.search import Match, random_input
from mhsa_cli.check.read.masks import allowed, kind_of, name_of, rows
from mhsa_cli.check.read.reference import ROPES, Spec
from mhsa_cli.check.read.weight_layouts import Layout
from mhsa_cli.check.source.trace import Trace, tracing
from mhsa_cli.check.tensors import Slot, max_difference

SEED = 20
DROPOUT = 0.4  # where dropout is tested


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

    @property
    def called(self) -> Anatomy:
        """What the instance runs as it was first called, in eval mode."""
        if self.instance.traced is None:
            self.instance.traced = self._anatomy(lambda: self.run(self.x))
        return self.instance.traced

    @cached_property
    def everything(self) -> Anatomy:
        """What the block runs in any of its calls: also where weights are returned, in training, and with dropout."""

        other: Instance | None = None
        with suppress(Exception, SystemExit):
            other = self.rebuild(dropout=DROPOUT)

        def calls() -> None:
            self.run(self.x)
            with suppress(Exception, SystemExit):
                self.run(self.x, weights=True)
            for name in self.other_masks:
                with suppress(Exception, SystemExit):
                    self.run(self.x, self.with_mask(name, True))
            if other is not None and other.module is not None:
                for training in (False, True):
                    other.module.train(training)
                    with suppress(Exception, SystemExit):
                        self.run(self.x, other)

        return self._anatomy(calls)

    @property
    def other_masks(self) -> list[str]:
        """Names of the masks that the call takes and is not given."""
        notes = untested(self.instance.call, self.call_form, self.instance.supplied, "")
        return [note.facts["name"] for note in notes]

    def with_mask(self, name: str, meaning: bool) -> Instance:
        """Give a mask (B, T) to every call, with one value for the first key and the other one for the rest."""
        mask = torch.full(self.x.shape[:2], not meaning)
        mask[:, 0] = meaning
        return replace(self.instance, supplied={**self.instance.supplied, name: mask})

    @cached_property
    def hides_scores(self) -> bool:
        """Whether a mask of the call hides anything; True where that is not seen, as in NumPy."""
        with _Masking() as seen, suppress(Exception, SystemExit):
            self.run(self.x)
        return self.instance.numpy or seen.hides or not seen.applied

    def _anatomy(self, calls: Callable[[], object]) -> Anatomy:
        """Trace the construction and calls; code that is no Python while it runs is followed by its names."""
        source, building = self.block.source, Trace()
        if not isinstance(self.instance.obj, ProjectedFunction):
            with tracing() as building:
                self.block.build(self.instance.sizes)
        with tracing() as traced:
            calls()
        runs = Runs(str(source.path), source.name, type(self.instance.obj), source.loading, building, traced)
        flow = executed_flow(runs)
        return Anatomy(flow if flow.call else flow_of(source.text, source.name))

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
    visible: Tensor | None = None  # which keys (columns) each query (row) sees, if no variant matches
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

    @property
    def mask_rows(self) -> list[str]:
        """The mask in use, drawn, if it is not plain: a row for each query, "x" for each key that it sees."""
        if self.match is not None:
            mask, T = self.match.spec.mask, self.instance.sizes.seq_len
            return [] if mask in ("causal", "none", "after") else rows(allowed(mask, T))
        if self.visible is None or not (self.mask_gap or name_of(self.visible)):
            return []
        return [] if name_of(self.visible) in ("causal", "none") else rows(self.visible)

    @property
    def right_spec(self) -> Spec:
        """The right form of the block: the variant that it equals without its faults."""
        assert self.match is not None
        spec = self.match.spec
        mask = spec.mask if kind_of(spec.mask) else "causal" if self.causal else "none"
        if not self.match.faults:
            return spec._replace(mask=mask)
        plain = Spec(frame=spec.frame, norm=spec.norm, rates=spec.rates, bias=spec.bias, gate=spec.gate, mlp=spec.mlp)
        return plain._replace(rope=self.right_rope, mask=mask)


class _Masking(TorchFunctionMode):
    """Sees whether a mask was applied by masked_fill or where, and whether one hid anything."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = self.hides = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        if getattr(func, "__name__", "") in ("masked_fill", "masked_fill_", "where"):
            found = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
            mask = next((one for one in found if one.dtype == torch.bool), None)
            if mask is not None:
                self.applied = True
                self.hides |= bool(mask.any()) and not bool(mask.all())
        return func(*args, **(kwargs or {}))


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
