"""Heads whose jobs are known: compiled programs, planted liars and planted heads; nothing false is said of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count as numbers

import pytest

from tests.faults.row import Place, Row


def cases(count: int, seed: int) -> Iterator[tuple[str, str, int]]:
    """The programs of whose heads something false was once said, all others, the liars, then planted heads."""
    from tests.core.liars import LIARS
    from tests.core.planted import NEW, OLD
    from tests.core.programs import PROGRAMS
    from tests.core.test_programs import QUICK

    first = [*QUICK, *(program.name for program in PROGRAMS if program.name not in QUICK)]
    known = [*(("program", name, 0) for name in first), *(("liar", liar.name, 0) for liar in LIARS)]
    yield from known[:count]
    draw = random.Random(seed)
    for number in numbers():
        if number >= count - len(known):
            return
        kinds = [*OLD, *NEW]
        yield "planted", kinds[number % len(kinds)], draw.randrange(10**6)


def believe_names(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a label stands by its pattern alone, whatever an ideal head of it would keep."""
    from mhsa_cli.core.heads import labels

    patch.setattr(labels, "KEPT", float("-inf"))


def check(case: tuple[str, str, int], place: Place) -> None:
    """Measure the model of a case; what is said of it is what is known of it."""
    from tests.core.liars import LIARS
    from tests.core.planted import recalled
    from tests.core.programs import PROGRAMS
    from tests.core.referee import Stage, false_headline, false_statements, false_teamwork, measured
    from tests.core.test_liars import check_liar

    kind, name, seed = case
    if kind == "liar":
        check_liar(next(liar for liar in LIARS if liar.name == name))
    elif kind == "planted":
        wrong = [pair for pair in recalled(name, seed) if pair[1] not in (None, pair[0])]
        assert not wrong, f"true and said: {wrong}"
    else:
        program = next(program for program in PROGRAMS if program.name == name)
        report, stage = measured(program), Stage(program, 48)
        false = false_statements(program, report) + false_teamwork(report, stage) + false_headline(report, stage)
        assert not false, "; ".join(false)


ROW = Row(
    fault="heads whose jobs are known: compiled programs, planted liars, planted heads: no false label, no false cause",
    promise="P15",
    quick=4,
    long=170,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.claims:believe_names",
)
