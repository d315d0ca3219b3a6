"""The table of `mhsa doctor`, on hand-made checks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.doctor import PROBLEMS, Check, Examination
from mhsa_cli.renderers.pictures.doctor import WAYS_OUT, doctor_table, way_out
from tests.renderers.drawn import golden, on

CHECKS = (
    Check("mhsa", "environment", "9.8.7 in ~/.venv/lib/python3.99/site-packages/mhsa_cli"),
    Check("cores", "environment", "6 of 48, with the time of 1.5", {}, "quota"),
    Check("torch", "torch", "OSError: libc10.so: cannot open shared object file", {}, "torch-failed"),
    Check("scipy", "libraries", "1.2 (wanted: 1.11 or newer)", {}, "library-old", minor=True),
    Check("numpy", "libraries", "2.4.6 (wanted: 1.26 or newer)", minor=True),
    Check("extras", "libraries", "png, plots; not installed: notebook, tui, tensorboard, ray"),
    Check("runs-folder", "disk", "cannot create a/b: the folder a does not exist", {}, "refused", "mkdir -p a"),
)
ALL = Examination(CHECKS)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_looks_as_stored(width: int) -> None:
    parts = [doctor_table(ALL, on(width, "none"), every) for every in (False, True)]
    assert all(part.columns <= width for part in parts)
    golden(f"doctor-{width}", "\n\n".join(part.plain for part in parts))


def test_a_minor_check_is_drawn_where_it_is_not_ok_or_all_are_wanted() -> None:
    rows = [{line.split()[0] for line in doctor_table(ALL, on(80), e).plain.splitlines()} for e in (False, True)]
    assert rows[1] - rows[0] == {"numpy"} and "scipy" in rows[0]


def test_every_fault_has_a_way_out_and_a_check_that_is_ok_has_none() -> None:
    assert set(WAYS_OUT) >= PROBLEMS
    for fault in WAYS_OUT:
        assert way_out(Check("a", "disk", "", {}, fault)) == WAYS_OUT[fault]
        assert way_out(Check("a", "disk", "", {}, fault, "another")) == "another"
    assert way_out(CHECKS[0]) == ""


def test_a_pipe_breaks_no_path() -> None:
    surface = replace(on(20, "none"), bounded=False)
    assert all(check.value in doctor_table(ALL, surface, True).plain for check in CHECKS)
