"""Programs are what their table says, and nothing false is said of their heads."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mhsa_cli.core.tasks.base import IGNORE, fixed_batch
from tests.core.compiler import Program, ProgramTask, attended, compiled
from tests.core.programs import PROGRAMS
from tests.core.referee import Stage, false_headline, false_statements, false_teamwork, measured

ROWS = 8
QUICK = (  # what was once said of their heads was false, or would be if a test of the report were left out
    "7 back or first",
    "mirror about the separator",
    "previous or first, by the token",
    "how many zeros",
    "two parts",
    "two digits",
    "sink",
    "first, everywhere",
    "previous of the previous",
    "with idle heads",
    "the other of two",
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_compiled_program_answers_and_attends_as_plain_python_does(program: Program) -> None:
    model, batch = compiled(program), fixed_batch(ProgramTask(program), 1, "compiler", ROWS)
    scored = batch.targets != IGNORE
    with torch.no_grad():
        logits, weights = model(batch.inputs, return_weights=True)
    assert scored.any() and torch.equal(logits.argmax(-1)[scored], batch.targets[scored])
    if program.sure:
        log_p = logits[scored].log_softmax(-1).gather(-1, batch.targets[scored].unsqueeze(-1))
        assert log_p.min() > -1e-6
    heads = torch.cat(weights, 1)  # (B, heads, T, T)
    for number, head in enumerate(program.heads):
        for b, q in scored.nonzero().tolist():
            wanted = torch.tensor(attended(head.job, batch.inputs[b].tolist(), q))
            assert (heads[b, number, q] - wanted).abs().max() < 1e-5, (number, b, q)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_label_of_the_table_names_the_pattern_and_does_its_work(program: Program) -> None:
    stage = Stage(program, ROWS)
    for number, head in enumerate(program.heads):
        for name in head.labels:
            weights, named = stage.ideal(name)
            assert stage.lift(number, weights, named) >= 0.5, (number, name)
            assert stage.accuracy({number: weights}) >= 0.8, (number, name)


def test_the_table_has_programs_and_heads_enough() -> None:
    heads = [head for program in PROGRAMS for head in program.heads]
    assert len(PROGRAMS) >= 40 and len(heads) >= 70
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS) and {p.name for p in PROGRAMS} >= {*QUICK}
    kinds = Counter(name.split(":")[0] for head in heads for name in head.labels)
    assert len(kinds) == 11 and sum(not head.labels for head in heads) >= 30  # all targets, and heads of none


@pytest.mark.parametrize("name", QUICK)
def test_nothing_false_is_said_of_a_head_whose_job_is_known(name: str) -> None:
    (program,) = (program for program in PROGRAMS if program.name == name)
    report, stage = measured(program, ROWS), Stage(program, 48)
    assert false_statements(program, report) == []
    assert false_teamwork(report, stage) == [] and false_headline(report, stage) == []
