"""Shared by the tests of grades: none depends on how far a slow or busy machine comes in its time."""

from __future__ import annotations

import pytest

from mhsa_cli.check.match import search


@pytest.fixture(autouse=True)
def all_the_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SECONDS", 300.0)
