"""Every kind of fault, so many cases at every push; and each kind notices the mutant that breaks its promise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.client import ForkServer
from tests.faults.row import broken_by, run_row
from tests.faults.table import ROWS

pytestmark = pytest.mark.faults


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """One fork server for all."""
    with ForkServer(tmp_path_factory.mktemp("outputs")) as server:
        yield server


@pytest.mark.parametrize("name", ROWS)
def test_the_promise_holds(name: str, server: ForkServer) -> None:
    outcome = run_row(ROWS[name], ROWS[name].quick, server)
    assert not outcome.failures, "\n".join([f"{len(outcome.failures)} failures", *outcome.failures[:9]])
    assert outcome.count == ROWS[name].quick


@pytest.mark.parametrize("name", ROWS)
def test_its_mutant_is_noticed(name: str, server: ForkServer) -> None:
    with broken_by(ROWS[name].mutant) as mutant:
        outcome = run_row(ROWS[name], ROWS[name].quick, server, mutant=mutant, first=True)
    assert outcome.failures, f"{outcome.count} cases, and none saw the mutant"
