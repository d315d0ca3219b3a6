"""Grade one block: build it, find the variant that it equals, ask the laws, and name what is wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch

from mhsa_cli.check.call.block import UncallableError, adapt
from mhsa_cli.check.call.call_forms import untested
from mhsa_cli.check.call.core_function import as_core
from mhsa_cli.check.call.name_lexicon import Sizes
from mhsa_cli.check.describe import how_found
from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.laws import LAWS, ask
from mhsa_cli.check.laws.gradients import moves_output, without_gradient
from mhsa_cli.check.laws.seen import Seen
from mhsa_cli.check.locate.lines import line_of
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.understand import understand
from mhsa_cli.check.read.weight_names import more_than_attention
from mhsa_cli.check.sentences import noted, say
from mhsa_cli.check.source.load import Source
from mhsa_cli.config.scalars import resolve
from mhsa_cli.records.check import REFERENCE, Grade, GradeOptions, Law, NamedFault, Note

# All different, and no one's root another's half: what hides behind equal sizes shows. B=2, H=4, T=7, d_head=6.
SIZES = Sizes(d_model=24, n_heads=4, seq_len=7, batch_size=2, max_seq_len=16)
EDGES = {"weights_after_dropout"}  # named, and no reason to call a block wrong


def grade(source: Source, options: GradeOptions, tell: Callable[[str], None] = lambda _: None) -> Grade:
    """Grade a block. `tell` hears what is done now. Never raises for what the block does wrong."""
    started, target = time.perf_counter(), f"{source.path}:{source.name}"
    torch.manual_seed(0)
    given = {"d_model": options.d_model, "n_heads": options.n_heads, "seq_len": options.seq_len}
    sizes = replace(SIZES, **{name: size for name, size in given.items() if size is not None})
    sizes = replace(sizes, max_seq_len=max(sizes.max_seq_len, 2 * sizes.seq_len + 2))
    pairs = [argument.split("=", 1) for argument in options.arguments]
    tell("building and calling it")
    try:
        block, built = adapt(source, sizes, {name: resolve(value) for name, value in pairs})
    except UncallableError as error:
        notes = [*source.notes, *error.notes]
        return Grade(target, "uncallable", {}, (), (), notes, error.tried, time.perf_counter() - started)
    c = understand(block, as_core(block, built), options, tell)
    tell("asking the laws")
    laws = ask(c)
    faults = list(_named(c, laws))
    failed = [name for name, seen in laws.items() if seen.passed is False and not LAWS[name].edge]
    grave = [fault for fault in faults if fault.name not in EDGES]
    verdict: Literal["right", "wrong", "unclear"] = "wrong" if failed or grave else "right"
    faults = grave if failed else faults
    if not faults and failed == [REFERENCE] and c.match is None:
        verdict = "unclear"
    notes = [*source.notes, *block.notes, *_notes(c)]
    found, codes = how_found(c)
    told = [
        Law(law.name, seen.passed, seen.worst, law.words(seen), law.edge, name, seen.code, seen.facts, law.rank)
        for (name, law), seen in zip(LAWS.items(), laws.values(), strict=True)
    ]
    return Grade(target, verdict, found, told, faults, notes, (), time.perf_counter() - started, codes)


def _named(c: Context, laws: Mapping[str, Seen]) -> Iterator[NamedFault]:
    """Name what the output showed, then what the laws did."""
    names: list[str] = list(c.match.faults) if c.match else []
    if c.plan.mask_name and len(names) > 1 and "mask_inverted" in names:
        names.remove("mask_inverted")  # what True means in a mask that is an argument was chosen here
    for name in names:
        yield _fault(c, name, c.match.difference if c.match else None)
    if c.noise in FAULTS:
        yield _fault(c, c.noise)
    if c.noise and not c.quiet:
        return  # whatever else is seen may be chance
    if c.mask_raises:
        yield _fault(c, "mask_argument_raises")
    if c.hole:
        yield _fault(c, "mask_with_a_hole", facts=c.hole)
    consequence = bool(names or c.noise) or c.match is None
    broken = {name: seen for name, seen in laws.items() if seen.passed is False}
    unregistered = "parameters_registered" in broken
    cut_off = "parameters_used" in broken and broken["parameters_used"].code == "no_gradient"
    if cut_off and not unregistered and "input_left_alone" not in broken:
        # What is cut off from the gradient moves the output; what does not may be without influence by another fault.
        moves = {name: moves_output(c, name) for name in without_gradient(c)}
        if cut := [name for name, moved in moves.items() if moved]:
            yield _fault(c, "gradient_cut", facts={"names": cut})
        if (unused := [name for name, moved in moves.items() if not moved]) and not consequence:
            yield _fault(c, "parameter_unused", facts={"names": unused})
    for law, seen in broken.items():
        name = LAWS[law].shows.get(seen.code, "")
        consequences = {
            "weights_not_used": consequence,
            "dropout_in_eval": unregistered or name == c.noise,  # eval() does not reach what is not registered
            "dropout_on_scores": name == "dropout_on_scores" and not _line(c, name),  # its code drops none
        }
        if name and name not in names and not consequences.get(name):
            yield _fault(c, name, facts=seen.facts, code=seen.code)


def _fault(
    c: Context, name: str, difference: float | None = None, facts: Mapping[str, Any] | None = None, code: str = ""
) -> NamedFault:
    """Name a fault; `facts` are what the law saw that shows it, `code` which outcome that was."""
    fault, facts = FAULTS[name], facts or {}
    s, d = c.built.sizes, (c.match.layout.roles.q.size(1) if c.match else c.built.sizes.d_head)
    factor = c.match.factor if c.match and c.match.factor else math.nan
    numbers = {"D": s.d_model, "H": s.n_heads, "d": d, "T": s.seq_len, "root_D": f"{math.sqrt(s.d_model):.2f}",
               "root_d": f"{math.sqrt(d):.2f}", "factor": f"{factor:.4g}",
               "factor_right": f"{1 / math.sqrt(d):.4g}"}  # fmt: skip
    says = say(fault.says, {**numbers, **facts}) + (f" ({say(fault.adds[code], facts)})" if code in fault.adds else "")
    line = _line(c, name, *([facts["names"]] if name == "parameter_unused" else []))
    place = c.block.source.place(line) if line else ""
    return NamedFault(name, says, fault.instead, line, place, difference, fault.title, facts)


def _line(c: Context, name: str, *given: Any) -> int | None:
    return line_of(c.block.source.text, c.block.source.name, FAULTS[name].where, *given)


def _notes(c: Context) -> Iterator[Note]:
    if c.match and c.match.spec.frame != "plain":
        yield noted("frame", frame=c.match.spec.frame)
    if c.match is None and (more := more_than_attention(c.slots)):
        yield noted("more_than_attention", names=more)
    if c.plan.time_first:
        yield noted("time_first")
    if c.padding:
        yield noted("padding", name=c.padding)
    told = c.padding or (c.plan.mask_name if c.mask_raises else "")
    yield from untested(c.built.call, c.plan, c.built.supplied, told)
    if not c.causal and c.match and not c.match.faults:
        yield noted("no_mask")
    if c.match and not c.match.faults and c.heads == 1 and c.match.layout.roles.out is None:
        yield noted("bare_head")
