"""A name that a command takes for something else is not given to a run."""

from __future__ import annotations

import pytest

from mhsa_cli.errors import UsageError
from mhsa_cli.runs.names import check_name


def test_newest_is_no_name_for_a_run() -> None:
    with pytest.raises(UsageError, match="means the newest run"):
        check_name("newest")
    assert check_name("newest-2") == "newest-2"
