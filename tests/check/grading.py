"""Grade a source that is only text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mhsa_cli.check.grade import grade
from mhsa_cli.check.source.load import load
from mhsa_cli.records.check import Grade, GradeOptions


def grade_text(source: str, entry: str, folder: Path, **options: Any) -> Grade:
    """Write a source into a file of a folder and grade what it calls `entry`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "block.py"
    path.write_text(source)
    return grade(load(f"{path}:{entry}"), GradeOptions(**options))


def names_of(result: Grade) -> set[str]:
    """List the faults that were named."""
    return {fault.id for fault in result.faults}


def described(result: Grade) -> str:
    """Describe a grade in the message of an assertion."""
    failed = [f"{law.id}: {law.finding}" for law in result.laws if law.passed is False]
    tries = [one.text for one in result.tried]
    return f"{result.verdict}; named {sorted(names_of(result))}; failed {failed}; tried {tries}"
