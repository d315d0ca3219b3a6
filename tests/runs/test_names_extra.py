"""A name that a command takes for something else is not given to a run."""

from __future__ import annotations

from mhsa_cli.runs.names import check_name
from tests.refusals import fact


def test_newest_is_no_name_for_a_run() -> None:
    assert fact(lambda: check_name("newest")) == ("bad-name", "")
    assert check_name("newest-2") == "newest-2"
