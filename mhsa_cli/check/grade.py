"""Grade a block: build it, find the variant that it equals, check the laws, and name its faults."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from mhsa_cli.check.call.block import UncallableError, adapt, with_projections
from mhsa_cli.check.call.call_form import untested
from mhsa_cli.check.call.instance import short_repr
from mhsa_cli.check.call.name_lexicon import BlockSizes
from mhsa_cli.check.call.raises import fault_of, mask_fault
from mhsa_cli.check.describe import describe
from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.laws import LAWS, check_laws
from mhsa_cli.check.laws.gradients import moves_output, without_gradient
from mhsa_cli.check.laws.outcome import Outcome
from mhsa_cli.check.locate.anatomy import place_of
from mhsa_cli.check.locate.evidence import has_mask
from mhsa_cli.check.match.analyse import analyse
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.stages import departure
from mhsa_cli.check.match.switches import switched
from mhsa_cli.check.read.weight_names import more_than_attention
from mhsa_cli.check.sentences import make_note, render
from mhsa_cli.check.source.load import Source
from mhsa_cli.config.scalars import resolve
from mhsa_cli.records.check import REFERENCE, Grade, GradeOptions, Law, NamedFault, Note, Switched, Verdict

# All different, and no root of one is half of another's: equal sizes hide faults. B=2, H=4, T=7, d_head=6.
GRADE_SIZES = BlockSizes(d_model=24, n_heads=4, seq_len=7, batch_size=2, max_seq_len=16)
# For blocks that cannot be called with these: d_head is a multiple of 8, 16 or 32.
OTHER_SIZES = tuple(replace(GRADE_SIZES, d_model=width, max_seq_len=18) for width in (32, 64, 128))
EDGES = {"weights_after_dropout"}  # named, but do not make a block wrong
BIDIRECTIONAL = "not_required"  # code of a missing mask that is a remark


def grade(
    source: Source,
    options: GradeOptions,
    on_stage: Callable[[str], None] = lambda _: None,
    on_context: Callable[[Context], None] = lambda _: None,
) -> Grade:
    """Grade a block; `on_stage` is called at each stage, `on_context` with what is known of the block as it is built.

    Never raises for an error of the block.
    """
    started, block_name = time.perf_counter(), f"{source.path}:{source.name}"
    torch.manual_seed(0)
    possible = {"d_model": options.d_model, "n_heads": options.n_heads, "seq_len": options.seq_len}
    stated = {name: size for name, size in possible.items() if size is not None}
    sizes = replace(GRADE_SIZES, **stated)
    sizes = replace(sizes, max_seq_len=max(sizes.max_seq_len, 2 * sizes.seq_len + 2))
    pairs = [argument.split("=", 1) for argument in options.arguments]
    given = {name: resolve(value) for name, value in pairs}
    on_stage("building and calling the block")
    try:
        block, instance = adapt(source, sizes, given, () if stated else OTHER_SIZES)
    except UncallableError as error:
        notes, seconds = [*source.notes, *error.notes], time.perf_counter() - started
        if (fault := fault_of(error, sizes, () if stated else OTHER_SIZES)) is not None:
            return Grade(block_name, "wrong", {}, (), [fault], notes, (), seconds)
        return Grade(block_name, "uncallable", {}, (), (), notes, error.tried, seconds)
    c = analyse(block, with_projections(block, instance), options, on_stage)
    on_context(c)
    on_stage("checking the laws")
    grade = _grade(c, block_name)
    if grade.verdict in ("right", "wrong"):
        on_stage("throwing its switches")
        for arguments in switched(c, instance.sizes, given):
            with suppress(Exception, SystemExit):  # what raises in this position alone is no fault
                block, thrown = adapt(source, instance.sizes, arguments)
                other = analyse(block, thrown, options, lambda _: None)
                grade = _joined(grade, arguments, *_judged(other, check_laws(other, edges=False)))
    return replace(grade, seconds=time.perf_counter() - started)


def _joined(grade: Grade, arguments: Mapping[str, Any], verdict: Verdict, faults: Sequence[NamedFault]) -> Grade:
    """Add a position of the switches: a fault that only it has makes the block wrong, an unknown kind does not."""
    text = ", ".join(f"{name}={short_repr(value)}" for name, value in arguments.items())
    known = {fault.id for fault in grade.faults}
    more = [replace(fault, arguments=text) for fault in faults if fault.id not in known and not fault.edge]
    rows = grade.switched or [_position("", grade.verdict, grade.faults)]
    return replace(
        grade,
        verdict="wrong" if more else grade.verdict,
        faults=[*grade.faults, *more],
        switched=[*rows, _position(text, verdict, faults)],
    )


def _position(arguments: str, verdict: Verdict, faults: Sequence[NamedFault]) -> Switched:
    return Switched(arguments, verdict, [fault.id for fault in faults if not fault.edge])


def _judged(c: Context, outcomes: Mapping[str, Outcome]) -> tuple[Verdict, list[NamedFault]]:
    """Name the faults of a block, and judge it."""
    faults = list(_faults(c, outcomes))
    failed = [name for name, outcome in outcomes.items() if outcome.passed is False and not LAWS[name].edge]
    grave = [fault for fault in faults if not fault.edge]
    faults = [fault for fault in faults if fault.id not in EDGES] if failed else faults
    if not grave and failed == [REFERENCE] and c.match is None:
        return "unclear", faults
    return "wrong" if failed or grave else "right", faults


def _grade(c: Context, block_name: str) -> Grade:
    """Grade a block as it is built."""
    outcomes = check_laws(c)
    verdict, faults = _judged(c, outcomes)
    notes = [*c.block.source.notes, *c.block.notes, *_notes(c)]
    detected, codes = describe(c)
    if verdict == "unclear":  # then the comparison with the reference says nothing by itself
        outcomes[REFERENCE] = replace(outcomes[REFERENCE], passed=None)
    laws = [
        Law(law.title, o.passed, o.max_difference, law.finding(o), law.edge, name, o.code, o.facts, law.rank)
        for (name, law), o in zip(LAWS.items(), outcomes.values(), strict=True)
    ]
    return Grade(block_name, verdict, detected, laws, faults, notes, codes=codes, mask=c.mask_rows)


def _faults(c: Context, outcomes: Mapping[str, Outcome]) -> Iterator[NamedFault]:
    """Name the faults that the output shows, then those that the laws show."""
    names: list[str] = list(c.match.faults) if c.match else []
    if c.call_form.mask_name and len(names) > 1 and "mask_inverted" in names:
        names.remove("mask_inverted")  # the meaning of True in a mask argument was chosen here
    departs = c.block.source.place_in(*place) if len(names) == 1 and (place := departure(c)) else ""
    if "mask_no_effect" in names and not c.call_form.mask and not has_mask(c.called, c.hides_scores):
        names[names.index("mask_no_effect")], departs = "mask_missing", ""  # the tensors differ where none is
    for name in names:
        fault = _fault(c, name, c.match.difference if c.match else None)
        yield replace(fault, place=fault.place or departs, departs=departs)
    if c.nondeterminism in FAULTS:
        yield _fault(c, c.nondeterminism)
    if c.nondeterminism and not c.dropout_disabled:
        return  # other findings may be random
    if c.rejects_masks:
        yield mask_fault(c.block, c.instance, c.call_form, c.x)
    if c.mask_gap:
        yield _fault(c, "mask_with_a_hole", facts=c.mask_gap)
    if not c.rejects_masks and not c.causal and c.match and c.match.spec.mask == "none":
        yield replace(
            _fault(c, "mask_missing", code=BIDIRECTIONAL), instead="", line=None, place="", file="", edge=True
        )
    consequence = bool(names or c.nondeterminism) or c.match is None
    broken = {name: outcome for name, outcome in outcomes.items() if outcome.passed is False}
    unregistered = "parameters_registered" in broken
    no_gradient = "parameters_used" in broken and broken["parameters_used"].code == "no_gradient"
    if no_gradient and not unregistered and "input_left_alone" not in broken:
        # A parameter without gradient that moves the output is cut off; one that does not may be a consequence.
        moves = {name: moves_output(c, name) for name in without_gradient(c)}
        if cut := [name for name, moved in moves.items() if moved]:
            yield _fault(c, "gradient_cut", facts={"names": cut})
        if (unused := [name for name, moved in moves.items() if not moved]) and not consequence:
            yield _fault(c, "parameter_unused", facts={"names": unused})
    for law, outcome in broken.items():
        name = LAWS[law].shows.get(outcome.code, "")
        consequences = {
            "weights_not_used": consequence,
            # eval() does not reach an unregistered layer
            "dropout_in_eval": unregistered or name == c.nondeterminism,
            "dropout_on_scores": name == "dropout_on_scores" and not _place(c, name),  # its code drops no scores
        }
        if name and name not in names and not consequences.get(name):
            yield replace(_fault(c, name, facts=outcome.facts, code=outcome.code), law=law)


def _fault(
    c: Context, name: str, difference: float | None = None, facts: Mapping[str, Any] | None = None, code: str = ""
) -> NamedFault:
    """Name a fault; `facts` and `code` are those of the law that shows it."""
    fault, facts = FAULTS[name], facts or {}
    s, d = c.instance.sizes, (c.match.layout.roles.q.size(1) if c.match else c.instance.sizes.d_head)
    factor = c.match.factor if c.match and c.match.factor else math.nan
    numbers = {"D": s.d_model, "H": s.n_heads, "d": d, "T": s.seq_len, "root_D": f"{math.sqrt(s.d_model):.2f}",
               "root_d": f"{math.sqrt(d):.2f}", "factor": f"{factor:.4g}",
               "factor_right": f"{1 / math.sqrt(d):.4g}"}  # fmt: skip
    by_width = c.match is not None and c.match.spec.scale == "after_width"
    numbers["divisor"] = f"sqrt({'d_model' if by_width else 'd_head'}) = {numbers['root_D' if by_width else 'root_d']}"
    added = f" ({render(fault.adds[code], facts)})" if code in fault.adds else ""
    explanation = render(fault.says_by_code.get(code, fault.says), {**numbers, **facts}) + added
    found = _place(c, name, *([facts["names"]] if name == "parameter_unused" else []))
    file, line = found or ("", None)
    place = "" if line is None else c.block.source.place_in(file, line)
    return NamedFault(name, explanation, fault.instead, line, place, difference, fault.title, facts, name in EDGES,
                      file=c.block.source.other_file(file))  # fmt: skip


def _place(c: Context, name: str, *args: Any) -> tuple[str, int] | None:
    return place_of(c.everything, FAULTS[name].where, *args)


def _notes(c: Context) -> Iterator[Note]:
    if c.match and c.match.spec.frame != "plain":
        yield make_note("frame", frame=c.match.spec.frame)
    if c.match is None and (more := more_than_attention(c.slots)):
        yield make_note("more_than_attention", names=more)
    if c.call_form.time_first:
        yield make_note("time_first")
    if c.padding:
        yield make_note("padding", name=c.padding)
    noted = c.padding or (c.call_form.mask_name if c.rejects_masks else "")
    yield from untested(c.instance.call, c.call_form, c.instance.supplied, noted)
    if c.match and not c.match.faults and c.heads == 1 and c.match.layout.roles.out is None:
        yield make_note("bare_head")
