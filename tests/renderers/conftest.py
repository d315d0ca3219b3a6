"""Pictures are drawn here as if the environment asked for nothing."""

from __future__ import annotations

import pytest

READ = ["TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG"]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what a console reads."""
    for name in READ:
        monkeypatch.delenv(name, raising=False)
