"""Stands in for the grader: builds the block and calls it once, with a known result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from mhsa_cli.check.source.load import Source
from mhsa_cli.records.check import Grade, GradeOptions, Law, NamedFault


def grade(source: Source, options: GradeOptions, on_stage: Callable[[str], None]) -> Grade:
    """Call the block with 5: right if that gives 5, otherwise wrong."""
    on_stage("calling")
    found = source.attention()(5)
    law = Law("same output", found == 5, float(found) - 5, f"it gave {found}", id="same")
    fault = NamedFault("scale_none", "it scales", "do not", 3, source.place(3), 1.5, "no scale")
    detected = {"options": str(asdict(options))}
    return Grade("?", "right" if found == 5 else "wrong", detected, [law], [] if found == 5 else [fault], source.notes)
