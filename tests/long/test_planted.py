"""Every planted fault is named, and no other; reported lines are near."""

from __future__ import annotations

from itertools import chain, groupby
from pathlib import Path

import pytest

from mhsa_cli.records.check import Grade, NamedFault
from tests.check.grading import described, grade_text, names_of
from tests.check.planted import STYLES, Planted, changed, framed, pairs, plant, sources
from tests.check.table import (
    BEGIN,
    END,
    MISSED,
    MORE,
    NAMED,
    NEAR,
    OTHER,
    RAISED,
    UNNAMED,
    Row,
    markdown,
    outcome_of,
    write,
)
from tests.check.test_changed_sources import QUICK as QUICK_RIGHT
from tests.check.test_changed_sources import RIGHT
from tests.check.test_changed_sources import check as check_right


def drawn() -> list[Planted]:
    """Take each fault in one style, another one from fault to fault, and each fourth of the others."""
    by_fault = sorted(sources(), key=lambda one: one.fault)
    groups = [list(group) for _, group in groupby(by_fault, key=lambda one: one.fault)]
    return [group[place % len(group)] for place, group in enumerate(groups)] + [*pairs(), *framed()][::4]


ALL = [*sources(), *pairs(), *framed()]
QUICK = drawn()
REST = [one for one in ALL if one not in QUICK]


def name(planted: Planted) -> str:
    return f"{planted.style}-{planted.fault.replace(' + ', '+')}"


def check(planted: Planted, folder: Path) -> None:
    result = grade_text(planted.source, planted.entry, folder, planted.beside)
    assert outcome_of(planted, result) == NAMED, described(result)
    assert all(fault.explanation and fault.instead for fault in result.faults)


@pytest.mark.parametrize("planted", QUICK, ids=name)
def test_a_drawn_fault_is_named(planted: Planted, tmp_path: Path) -> None:
    check(planted, tmp_path)


@pytest.mark.parametrize("planted", REST, ids=name)
def test_every_other_fault_is_named(planted: Planted, tmp_path: Path) -> None:
    check(planted, tmp_path)


OF_FAMILIAR_NAMES = [one for one in changed() if not one.style.endswith("_renamed")][::4]
# Whether heads divide a width is asked only where a name tells which size is which.
OTHERS = [one for one in changed() if one.style.endswith("_renamed") and "heads_not_dividing" not in one.faults]
OF_OTHERS = OTHERS[::20]


@pytest.mark.parametrize("planted", OF_FAMILIAR_NAMES, ids=name)
def test_a_fault_is_named_where_code_differs_as_real_code_does(planted: Planted, tmp_path: Path) -> None:
    check(planted, tmp_path)


@pytest.mark.parametrize("planted", OF_OTHERS, ids=name)
def test_a_fault_among_unfamiliar_names_is_found(planted: Planted, tmp_path: Path) -> None:
    """Where names say nothing, weights are measured: a fault may then be found without a name."""
    result = grade_text(planted.source, planted.entry, tmp_path, planted.beside)
    assert outcome_of(planted, result) not in (MISSED, OTHER, RAISED), described(result)


@pytest.mark.parametrize("planted", [one for one in RIGHT if one not in QUICK_RIGHT], ids=lambda one: one.style)
def test_a_changed_style_without_a_fault_is_called_right(planted: Planted, tmp_path: Path) -> None:
    check_right(planted, tmp_path)


def test_every_fault_is_drawn_in_some_style() -> None:
    assert {one.fault for one in QUICK} >= {one.fault for one in sources()}
    assert len({one.style for one in QUICK}) >= 8


@pytest.mark.parametrize("fault", ["scale_d_model", "softmax_over_queries", "mask_no_effect", "out_missing"])
@pytest.mark.parametrize("style", ["fused", "three", "numpy", "per_head"])
def test_the_line_of_a_fault_is_near(style: str, fault: str, tmp_path: Path) -> None:
    planted = plant(STYLES[style], fault)
    result = grade_text(planted.source, planted.entry, tmp_path)
    lines = [named.line for named in result.faults if named.id == fault]
    assert lines and lines[0] is not None and abs(lines[0] - planted.line) <= NEAR, (lines, planted.line)


def answer(verdict: str, *names: str) -> Grade:
    faults = [NamedFault(one, "", "", None, "", None) for one in names]
    return Grade("a", verdict, {}, (), faults, ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "result", "outcome"),
    [
        ("scale_none", answer("wrong", "scale_none"), NAMED),
        ("scale_twice", answer("wrong", "scale_d_head_unrooted"), NAMED),
        ("scale_none", answer("wrong", "scale_none", "out_missing"), MORE),
        ("scale_none", answer("wrong"), UNNAMED),
        ("scale_none", answer("wrong", "out_missing"), OTHER),
        ("scale_none", answer("right"), MISSED),
        ("scale_none + out_missing", answer("wrong", "scale_none"), OTHER),
        ("scale_none + out_missing", answer("wrong", "out_missing", "scale_none"), NAMED),
    ],
)
def test_an_outcome(fault: str, result: Grade, outcome: str) -> None:
    assert outcome_of(Planted(fault, "fused", "", "", 1), result) == outcome
    assert names_of(result) == {named.id for named in result.faults}


def test_the_table_stands_between_its_marks(tmp_path: Path) -> None:
    def row(style: str, outcome: str, off: int | None) -> Row:
        return Row(Planted("scale_none", style, "", "", 1), outcome, "", off, 0.1)

    text = markdown([row("fused", NAMED, 0), row("three", RAISED, None)], [row("fused", NAMED, 9)], [])
    assert "| `scale_none` | named | RAISED |" in text
    assert "One fault: 1 of 2 named; 1 RAISED." in text and "at once: 1 of 1 named." in text
    path = tmp_path / "check.md"
    write("an old table\n", path)
    path.write_text("before\n\n" + path.read_text() + "\nafter\n")
    write(text, path)
    written = path.read_text()
    assert "an old table" not in written and text in written
    assert written.startswith("before\n") and written.endswith("\nafter\n")
    assert written.count(BEGIN) == written.count(END) == 1
    write(text, path)
    assert path.read_text() == written


def test_all_planted_sources_differ() -> None:
    everything = list(chain(ALL, (Planted("", s.name, s.right(), s.entry, 0) for s in STYLES.values())))
    assert len({one.source for one in everything}) == len(everything)
