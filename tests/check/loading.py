"""Shared by the tests of loading: a place to write files in, and what a refusal says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.check.source.load import Source, load
from mhsa_cli.errors import UsageError

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file and give its path; what loading puts on sys.path goes again."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def writing(text: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return writing


def notes(source: Source) -> str:
    return "\n".join(note.text for note in source.notes)


def refusal(block: str) -> str:
    with pytest.raises(UsageError) as error:
        load(block)
    assert error.value.hint, "an error has a way out"
    return str(error.value)
