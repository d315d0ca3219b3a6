"""Attention as people write it is graded as it is: none that is right is called wrong, and faults have their lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mhsa_cli.check.grade import grade
from mhsa_cli.check.source.load import Source, load
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import GradeOptions, NamedFault
from tests.check.expected import EXPECTED, FOUND, Expected
from tests.check.grading import described

QUICK = EXPECTED[::4]


@pytest.fixture(autouse=True)
def modules_of_one_file() -> Iterator[None]:
    """Forget what a file imports from its neighbours: others have modules of the same names."""
    known, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - known:
        if str(FOUND) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path[:] = path


def check(expected: Expected) -> None:
    """Grade a file, and compare the grade with what is expected."""
    try:
        source = load(f"{FOUND}/{expected.block}")
    except UsageError as error:
        assert expected.verdict == "uncallable" and error.hint, str(error)
        return
    result = grade(source, GradeOptions())
    named = {fault.id: fault for fault in result.faults if not (fault.edge and fault.id == "mask_missing")}
    said = {name for name in named if name not in expected.edges}
    assert result.verdict == expected.verdict, described(result)
    assert said <= set(expected.faults), described(result)
    assert len(said) >= (len(expected.faults) if expected.enough is None else expected.enough), described(result)
    for name in said:
        places = [is_at(named[name], place, source) for place in expected.places(name)]
        assert any(places), (name, named[name].place, expected.places(name))
    edges = {law.id for law in result.laws if law.edge and law.passed is False} | set(named)
    assert set(expected.edges) <= edges, described(result)
    assert result.codes.get("kind of attention", "") == expected.kind, result.codes
    for name, verdict in expected.switched.items():
        thrown = [one.verdict for one in result.switched if one.arguments.startswith(f"{name}=")]
        assert set(thrown) == {verdict}, result.switched


def is_at(fault: NamedFault, place: tuple[Path, int] | None, source: Source) -> bool:
    """Tell whether a fault is told at a file and line."""
    if place is None:
        return True
    return fault.line == place[1] and (place[0] == source.path or place[0].name in fault.place)


@pytest.mark.parametrize("expected", QUICK, ids=lambda one: one.block)
def test_a_block_that_was_found_is_graded_as_it_is(expected: Expected) -> None:
    check(expected)


def test_every_file_is_expected_or_imported_by_one_that_is() -> None:
    there = {path for path in FOUND.rglob("*") if path.suffix in (".py", ".ipynb") and path.name != "__init__.py"}
    expected = {one.path for one in EXPECTED}
    assert expected <= there
    texts = [path.read_text() for path in there]
    for path in there - expected:
        assert any(path.stem in text for text in texts), path
    assert len({one.block for one in EXPECTED}) == len(EXPECTED) >= 100
    for one in EXPECTED:
        assert all(one.places(fault) for fault in one.faults), one.block
