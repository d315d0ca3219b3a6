"""Grade one candidate: build it, find the variant that it equals, ask the laws, and name what is wrong."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import torch

from mhsa_cli.core.check import lines
from mhsa_cli.core.check.adapters import UncallableError, adapt
from mhsa_cli.core.check.binding import Sizes
from mhsa_cli.core.check.context import Context
from mhsa_cli.core.check.core_function import as_core
from mhsa_cli.core.check.faults import FAULTS
from mhsa_cli.core.check.gradients import moves_output, without_gradient
from mhsa_cli.core.check.laws import ask
from mhsa_cli.core.check.laws_of_dropout import LEAKS, NOT_FINITE
from mhsa_cli.core.check.matching import understand
from mhsa_cli.core.check.naming import more_than_attention
from mhsa_cli.core.check.seen import listed
from mhsa_cli.core.check.source import Source
from mhsa_cli.core.check.ways import untested
from mhsa_cli.core.check.wording import found_words, given_arguments
from mhsa_cli.records.check import Grade, Law, NamedFault, Wishes

# All different, and no one's root another's half: what hides behind equal sizes shows. B=2, H=4, T=7, d_head=6.
SIZES = Sizes(d_model=24, n_heads=4, seq_len=7, batch_size=2, max_seq_len=16)
# A law that fails -> the fault that it shows, where the output named none.
SHOWN = {
    "parameters are registered": "parameters_not_registered",
    "no memory of earlier calls": "state_between_calls",
    "the mask moves with the module": "mask_not_a_buffer",
    "the input is left alone": "input_changed_in_place",
    "heads that do not divide": "heads_not_dividing",
    "weights returned are those used": "weights_not_used",
    "weights returned in training": "weights_after_dropout",
}
EDGES = {"weights_after_dropout"}  # named, and no reason to call a block wrong
# What a law says before the place or the names that it saw: the fault says so already.
SAID = re.compile(
    r"^(no gradient reaches |parameters\(\) does not know |.*: (?=at \[))| stays on its device when the module moves$"
    r"|^(x is changed in place|it drops in eval as well|the same input gives another output after other calls"
    r"|the weights returned in training are those after dropout: rows do not sum to one)$"
)


def grade(source: Source, wishes: Wishes, tell: Callable[[str], None] = lambda _: None) -> Grade:
    """Grade a candidate. `tell` hears what is done now. Never raises for what the candidate does wrong."""
    started = time.perf_counter()
    torch.manual_seed(0)
    sizes = replace(SIZES, **{k: v for k, v in (("d_model", wishes.d_model), ("n_heads", wishes.n_heads),
                    ("seq_len", wishes.seq_len)) if v is not None})  # fmt: skip
    sizes = replace(sizes, max_seq_len=max(sizes.max_seq_len, 2 * sizes.seq_len + 2))
    tell("building and calling it")
    try:
        candidate, built = adapt(source, sizes, given_arguments(wishes.arguments))
    except UncallableError as error:
        return Grade(f"{source.path}:{source.name}", "uncallable", {}, (), (), [*source.notes, *error.notes],
                     error.tried, time.perf_counter() - started)  # fmt: skip
    built = as_core(candidate, built)
    context, noise = understand(candidate, built, wishes, tell)
    tell("asking the laws")
    laws = ask(context)
    faults = list(_named(context, laws, noise))
    failed = [law for law in laws if law.passed is False and not law.edge]
    grave = [fault for fault in faults if fault.name not in EDGES]
    verdict: Literal["right", "wrong", "unclear"] = "wrong" if failed or grave else "right"
    faults = grave if failed else faults
    if not faults and [law.name for law in failed] == ["equal to the reference"] and context.match is None:
        verdict = "unclear"
    notes = [*source.notes, *candidate.notes, *_notes(context)]
    return Grade(f"{source.path}:{source.name}", verdict, found_words(context), laws, faults, notes, (),
                 time.perf_counter() - started)  # fmt: skip


def _named(c: Context, laws: Sequence[Law], noise: str) -> Iterator[NamedFault]:
    """Name what the output showed, then what the laws did."""
    names: list[str] = list(c.match.faults) if c.match else []
    if c.plan.mask_name and len(names) > 1 and "mask_inverted" in names:
        names.remove("mask_inverted")  # what True means in a mask that is an argument was chosen here
    for name in names:
        yield _fault(c, name, c.match.difference if c.match else None)
    if noise in FAULTS:
        yield _fault(c, noise, None)
    if noise and not c.quiet:
        return  # whatever else is seen may be chance
    if c.mask_raises:
        yield _fault(c, "mask_argument_raises", None)
    if c.hole:
        yield _fault(c, "mask_with_a_hole", None, c.hole)
    explained = bool(names or noise)
    consequence = explained or c.match is None
    broken = {law.name: law for law in laws if law.passed is False}
    unregistered = "parameters are registered" in broken
    used = broken.get("every parameter is used")
    if used and used.seen.startswith("no gradient") and not unregistered and "the input is left alone" not in broken:
        yield from _without_gradient(c, consequence)
    for law in broken.values():
        name = SHOWN.get(law.name, "")
        if law.name == "dropout only in training":
            name = "dropout_in_eval" if "eval" in law.seen else ""
            name = "" if name == noise or unregistered else name  # eval() does not reach what is not registered
            if law.seen in (NOT_FINITE, LEAKS) and lines.line_of(c.candidate.source.text, c.candidate.source.name,
                                                                 FAULTS["dropout_on_scores"].where):  # fmt: skip
                yield _fault(c, "dropout_on_scores", None)
        if name == "state_between_calls" and law.worst is None:
            continue  # it was answered by an exception
        if (
            not name
            or name in names
            or law.seen.startswith("torch's own")
            or (consequence and law.name == "weights returned are those used")
        ):
            continue  # a consequence of what was named
        yield _fault(c, name, None, SAID.sub("", law.seen))


def _without_gradient(c: Context, consequence: bool) -> Iterator[NamedFault]:
    """Tell what is cut off from the gradient from what has no influence, which may be because of another fault."""
    cut: list[str] = []
    unused: list[str] = []
    for name in without_gradient(c):
        (cut if moves_output(c, name) else unused).append(name)
    if cut:
        yield _fault(c, "gradient_cut", None, listed(cut))
    if unused and not consequence:
        yield _fault(c, "parameter_unused", None, listed(unused), tuple(unused))


def _fault(c: Context, name: str, difference: float | None, seen: str = "", unused: tuple[str, ...] = ()) -> NamedFault:
    source, fault = c.candidate.source, FAULTS[name]
    s, d = c.built.sizes, (c.match.layout.roles.q.size(1) if c.match else c.built.sizes.d_head)
    factor = c.match.factor if c.match and c.match.factor else math.nan
    words = {"D": s.d_model, "H": s.n_heads, "d": d, "T": s.seq_len, "root_D": f"{math.sqrt(s.d_model):.2f}",
             "root_d": f"{math.sqrt(d):.2f}", "factor": f"{factor:.4g}",
             "factor_right": f"{1 / math.sqrt(d):.4g}", "seen": seen}  # fmt: skip
    says = fault.says.format(**words) + (f" ({seen})" if seen and "{seen}" not in fault.says else "")
    line = lines.line_of(source.text, source.name, fault.where, unused)
    return NamedFault(name, says, fault.instead, line, source.place(line) if line else "", difference)


def _notes(c: Context) -> Iterator[str]:
    if c.match and c.match.spec.frame != "plain":
        yield f"inside it there is more than attention ({c.match.spec.frame}): this was taken off before comparing"
    if c.match is None and (more := more_than_attention(c.slots)):
        yield f"it holds more than attention: {', '.join(more)}; check the attention inside it by itself"
    if c.plan.time_first:
        yield "time comes first: its x is (T, B, D); given (B, T, D) it would attend over the rows of the batch"
    if c.padding:
        yield f"{c.padding} says which tokens are there (B, T): it was not given, so it is not tested"
    told = c.padding or (c.plan.mask_name if c.mask_raises else "")
    yield from untested(c.built.call, c.plan, c.built.supplied, told)
    if not c.causal and c.match and not c.match.faults:
        yield "it has no causal mask: every token sees all; as a decoder's attention it would need one"
    if c.match and not c.match.faults and c.heads == 1 and c.match.layout.roles.out is None:
        yield "it is one head without an output projection"
