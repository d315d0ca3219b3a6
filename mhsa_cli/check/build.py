"""Load FILE:Class for training: the one place that runs a user's file for that.

How the class is built and called, and the layout of its weights, is detected as in `mhsa check`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mhsa_cli.check.call.block import Block, UncallableError, adapt
from mhsa_cli.check.call.call_form import CallForm, CallResult, invoke, positions_for
from mhsa_cli.check.call.instance import entry_point
from mhsa_cli.check.call.name_lexicon import BlockSizes
from mhsa_cli.check.grade import GRADE_SIZES, OTHER_SIZES
from mhsa_cli.check.match import search
from mhsa_cli.check.match.analyse import case_of, mask_forms, without_unused_positions
from mhsa_cli.check.match.context import SEED, CallContext
from mhsa_cli.check.match.influence import detect_time_first, sees_future
from mhsa_cli.check.match.search import Match
from mhsa_cli.check.read.reference import Reference
from mhsa_cli.check.read.weight_layouts import layouts
from mhsa_cli.check.source.load import Source, load
from mhsa_cli.check.tensors import max_difference, slots
from mhsa_cli.config.custom_attention import ATTENTION
from mhsa_cli.config.own_file import file_digest, file_problem, form_problem, split
from mhsa_cli.core.model.custom import FIXED_SEED, CustomAttention, CustomBlock, Sizes, check_hint, seeded
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import GradeOptions

CLOSE = 1e-3  # of the largest output: float32 compared with float64
TRIED = 3  # failed attempts that an error lists


class ModuleBlock(CustomBlock):
    """A torch module, called as detected; its weights are those it returns, or computed in the matched layout.

    `confirmed` keeps, by sizes, whether the match also holds for them.
    """

    def __init__(
        self, block: Block, call_form: CallForm, match: Match | None, confirmed: dict[Sizes, bool], sizes: Sizes
    ) -> None:
        super().__init__()
        self.call_form, self.n_heads = call_form, sizes.n_heads
        T = sizes.max_seq_len
        self.sizes = BlockSizes(sizes.d_model, sizes.n_heads, T, 2, T, sizes.dropout)
        instance = block.build(self.sizes)
        if instance.module is None:
            what = "a NumPy implementation" if instance.numpy else "no torch module"
            raise UsageError(f"{block.source.name} is {what}: it has no gradient", "write it as a torch.nn.Module")
        self.module = instance.module.to(torch.float32)
        if match is not None and sizes not in confirmed:
            confirmed[sizes] = self._confirms(match)
        self.match = match if match is not None and confirmed[sizes] else None

    def _confirms(self, match: Match) -> bool:
        """Whether the match also gives the output at these sizes."""
        T, D = self.sizes.max_seq_len, self.sizes.d_model
        x = torch.randn(2, T, D, generator=torch.Generator().manual_seed(FIXED_SEED))
        self.eval()
        with torch.no_grad():
            y, reference = self._call(x, False).y, self._reference(match, x)
        expected = None if reference is None else reference.output(match.spec)
        return expected is not None and max_difference(expected, y) <= CLOSE * float(y.abs().max())

    def _reference(self, match: Match, x: Tensor) -> Reference | None:
        weights = slots(self.module)
        possible = layouts(weights, {slot.path: slot.read() for slot in weights}, self.sizes.d_model, self.n_heads)
        roles = next((layout.roles for layout in possible if layout.name == match.layout.name), None)
        return None if roles is None else Reference(roles, x.detach().double().cpu())

    def _call(self, x: Tensor, weights: bool) -> CallResult:
        form, extra = self.call_form, dict[str, Tensor]()
        if form.positions:  # 0, 1, 2, ...; grading passes every second one
            extra[form.positions_name] = positions_for(form, x.size(1), len(x)).to(x.device) // 2
            form = replace(form, positions="")
        call = entry_point(self.module)
        with nullcontext() if x.device.type == "cpu" else x.device:  # masks are made on the device of x
            return invoke(call, form, x, numpy=False, sizes=self.sizes, weights=weights, extra=extra)

    def forward(self, x: Tensor) -> Tensor:
        return self._call(x, False).y

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        result = self._call(x, True)
        if result.weights is not None or self.match is None:
            return result.y, result.weights
        reference = self._reference(self.match, x)
        return result.y, None if reference is None else reference.weights(self.match.spec).to(x)


def load_block(block: str) -> CustomAttention:
    """Load FILE:Class and detect how it is built and called.

    Raises: UsageError if it does not exist, its file fails, or its arguments cannot be inferred.
    """
    problem = form_problem(block, ATTENTION) or file_problem(block, ATTENTION)
    if problem is not None:
        raise UsageError(problem.message, problem.hint)
    with seeded(FIXED_SEED):
        source = load(block)
        c, match = _matched(block, source)
    confirmed: dict[Sizes, bool] = {}
    file = Path(split(block)[0])
    return CustomAttention(
        block,
        file,
        file_digest(block),
        lambda sizes: ModuleBlock(c.block, c.call_form, match, confirmed, sizes),
        source.place,
        match is not None,
        tuple(slot.path for slot in slots(c.instance.module) if not slot.registered and slot.value.requires_grad),
    )


def _matched(name: str, source: Source) -> tuple[CallContext, Match | None]:
    """Find how a block is called and masked, and whether it equals the reference; `mhsa check` names its faults."""
    try:
        block, instance = adapt(source, GRADE_SIZES, others=OTHER_SIZES)
    except UncallableError as error:
        shown = "; ".join(one.text for one in error.tried[:TRIED])
        raise UsageError(f"{name} cannot be built or called: {shown}", check_hint(name)) from error
    if instance.module is None:
        what = "computes with NumPy" if instance.numpy else "is no torch module"
        raise UsageError(f"{name} {what}: it cannot be trained", "write it as a class that is a torch.nn.Module")
    c = CallContext(
        block, instance, block.call_form, instance.sizes.n_heads, instance.draw(SEED), dropout_disabled=True
    )
    c = without_unused_positions(detect_time_first(c))
    if c.call_form.mask_name and sees_future(c):
        forms = mask_forms(c).forms
        causal = (form for form in forms if not sees_future(replace(c, call_form=form)))
        c = replace(c, call_form=next(causal, forms[0]))
    try:
        return c, search.find_right(case_of(c, True, GradeOptions()))
    except Exception:  # such as an output of another shape: the trial call reports it
        return c, None
