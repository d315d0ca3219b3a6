"""From FILE:Class to a block that can be trained. This is the one place that runs somebody's file for training.

How the class is built and called, and what its weights are, is found as `mhsa check` finds it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from mhsa_cli.check.call import call_plan, name_lexicon
from mhsa_cli.check.call.block import Block, UncallableError, adapt
from mhsa_cli.check.call.call_plan import Answer, Plan
from mhsa_cli.check.call.instance import entry
from mhsa_cli.check.grade import SIZES
from mhsa_cli.check.match import search
from mhsa_cli.check.match.context import SEED, Called
from mhsa_cli.check.match.influence import see_axes, sees_future
from mhsa_cli.check.match.search_case import Match
from mhsa_cli.check.match.understand import case_of, masked_ways
from mhsa_cli.check.read.reference import Reference
from mhsa_cli.check.read.weight_layouts import layouts
from mhsa_cli.check.source.load import Source, load
from mhsa_cli.check.tensors import slots, worst
from mhsa_cli.config.custom_attention import file_problem, form_problem, split
from mhsa_cli.core.model.custom import FIXED_SEED, CustomAttention, CustomBlock, Sizes, check_hint, seeded
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import GradeOptions

CLOSE = 1e-3  # of the largest output: float32 against the float64 of the reading
TRIED = 3  # tries that an error shows


class ModuleBlock(CustomBlock):
    """A torch module, called in the way that was found; its weights are its own, or recovered by the match's reading.

    `borne` keeps for which sizes that was seen to hold.
    """

    def __init__(self, block: Block, plan: Plan, match: Match | None, borne: dict[Sizes, bool], sizes: Sizes) -> None:
        super().__init__()
        self.plan, self.n_heads = plan, sizes.n_heads
        own = name_lexicon.Sizes(sizes.d_model, sizes.n_heads, sizes.max_seq_len, 2, sizes.max_seq_len, sizes.dropout)
        built = block.build(own)
        if built.module is None:
            what = "a NumPy implementation" if built.numpy else "no torch module"
            raise UsageError(f"{block.source.name} is {what}: it has no gradient", "write it as a torch.nn.Module")
        self.module, self.sizes = built.module.to(torch.float32), own
        if match is not None and sizes not in borne:
            borne[sizes] = self._bears_out(match)
        self.match = match if match is not None and borne[sizes] else None

    def _bears_out(self, match: Match) -> bool:
        """Tell whether the match's reading also gives the output of this build."""
        T, D = self.sizes.max_seq_len, self.sizes.d_model
        x = torch.randn(2, T, D, generator=torch.Generator().manual_seed(FIXED_SEED))
        self.eval()
        with torch.no_grad():
            y, found = self._call(x, False).y, self._reference(match, x)
        wanted = None if found is None else found.output(match.spec)
        return wanted is not None and worst(wanted, y) <= CLOSE * float(y.abs().max())

    def _reference(self, match: Match, x: Tensor) -> Reference | None:
        own = slots(self.module)
        numbers = {slot.path: slot.read() for slot in own}
        found = layouts(own, numbers, self.sizes.d_model, self.n_heads)
        roles = next((layout.roles for layout in found if layout.name == match.layout.name), None)
        return None if roles is None else Reference(roles, x.detach().double().cpu())

    def _call(self, x: Tensor, weights: bool) -> Answer:
        plan, extra = self.plan, dict[str, Tensor]()
        if plan.positions:  # the tokens' own, where the grading takes every second one
            extra[plan.positions_name] = call_plan.positions_of(plan, x.size(1), len(x)).to(x.device) // 2
            plan = replace(plan, positions="")
        call = entry(self.module)
        with nullcontext() if x.device.type == "cpu" else x.device:  # masks are made where x is
            return call_plan.invoke(call, plan, x, numpy=False, sizes=self.sizes, weights=weights, extra=extra)

    def forward(self, x: Tensor) -> Tensor:
        return self._call(x, False).y

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        answer = self._call(x, True)
        if answer.weights is not None or self.match is None:
            return answer.y, answer.weights
        found = self._reference(self.match, x)
        return answer.y, None if found is None else found.weights(self.match.spec).to(x)


def load_block(target: str) -> CustomAttention:
    """Load FILE:Class and find out how it is built and called.

    Raises: UsageError if it is not there, its file fails, or nobody can guess how to call it.
    """
    problem = form_problem(target) or file_problem(target)
    if problem is not None:
        raise UsageError(problem.message, problem.hint)
    with seeded(FIXED_SEED):
        source = load(target)
        c, match = _understood(target, source)
    borne: dict[Sizes, bool] = {}
    file = Path(split(target)[0])
    return CustomAttention(
        target,
        file,
        sha256(file.read_bytes()).hexdigest(),
        lambda sizes: ModuleBlock(c.block, c.plan, match, borne, sizes),
        source.place,
        match is not None,
        tuple(slot.path for slot in slots(c.built.module) if not slot.registered and slot.value.requires_grad),
    )


def _understood(target: str, source: Source) -> tuple[Called, Match | None]:
    """Find how it is called and masked, and whether it equals the reference; for its faults there is `mhsa check`."""
    try:
        block, built = adapt(source, SIZES)
    except UncallableError as error:
        shown = "; ".join(one.text for one in error.tried[:TRIED])
        raise UsageError(f"{target} cannot be built or called: {shown}", check_hint(target)) from error
    if built.module is None:
        what = "computes with NumPy" if built.numpy else "is no torch module"
        raise UsageError(f"{target} {what}: it cannot be trained", "write it as a class that is a torch.nn.Module")
    c = see_axes(Called(block, built, block.plan, SIZES.n_heads, built.draw(SEED), quiet=True))
    if c.plan.mask_name and sees_future(c):
        ways = masked_ways(c).ways
        blind = (way for way in ways if not sees_future(replace(c, plan=way)))
        c = replace(c, plan=next(blind, ways[0]))
    try:
        return c, search.right(case_of(c, True, GradeOptions()))
    except Exception:  # its output has another shape, say: the trial will tell
        return c, None
