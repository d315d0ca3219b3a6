"""Every program: no false label, no false cause; and the table of programs names every label that is true."""

from __future__ import annotations

import pytest

from tests.core.compiler import Program
from tests.core.programs import PROGRAMS
from tests.core.referee import Stage, false_headline, false_statements, false_teamwork, measured, names, unnamed

each = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@each
def test_nothing_false_is_said_of_a_head_whose_job_is_known(program: Program) -> None:
    report, stage = measured(program), Stage(program, 48)
    assert false_statements(program, report) == []
    assert false_teamwork(report, stage) == [] and false_headline(report, stage) == []


@each
def test_a_job_on_the_list_of_labels_is_named(program: Program) -> None:
    assert unnamed(program, measured(program)) == []


@each
def test_labels_that_the_table_leaves_out_do_not_do_the_work(program: Program) -> None:
    """A name that fits is in the table, or is looser than one that is: its keys hold those of the other."""
    stage = Stage(program, 8)
    for number, head in enumerate(program.heads):
        if stage.accuracy({number: stage.uniform}) >= 0.8:  # any pattern would do
            continue
        fits = {}
        for name in names(program):
            weights, named = stage.ideal(name)
            lift = stage.lift(number, weights, named)
            if lift >= 0.5 and stage.accuracy({number: weights}) >= 0.8:
                fits[name] = lift, (weights > 0)[named.any(0).expand_as(named)].double().sum(-1).mean()
        known = [fits[name] for name in head.labels]
        for name in fits.keys() - set(head.labels):
            lift, size = fits[name]
            assert any(more > lift - 1e-6 and fewer <= size or more > lift + 0.1 for more, fewer in known), name
