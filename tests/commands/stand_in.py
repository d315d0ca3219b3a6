"""Stands in for the grader: builds the block and calls it once, with a known result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mhsa_cli.check.source.load import Source
from mhsa_cli.records.check import Grade, GradeOptions, Law, NamedFault


def claim(_: Any) -> str:
    """Claim nothing."""
    return "mine"


def answer(_: Any, claimed: Any, seed: int) -> int:
    """Give the seed back."""
    return seed


def refusal(laws: Any, claimed: Any, seed: int, answered: Any, causal: Any) -> list[str] | None:
    """Believe what claims and answers as above."""
    return None if (claimed, answered) == ("mine", seed) and laws else ["claim", "x"]


def grade(
    source: Source, options: GradeOptions, on_stage: Callable[[str], None], on_context: Callable[[Any], None]
) -> Grade:
    """Call the block with 5: right if that gives 5, right with a remark if 5.5, otherwise wrong."""
    on_stage("calling")
    on_context(None)
    found = source.attention()(5)
    law = Law("same output", found in (5, 5.5), float(found) - 5, f"it gave {found}", id="same")
    fault = NamedFault("scale_none", "it scales", "do not", 3, source.place(3), 1.5, "no scale", edge=found == 5.5)
    detected = {"options": str(asdict(options))}
    verdict = "right" if law.passed else "wrong"
    return Grade("?", verdict, detected, [law], [] if found == 5 else [fault], source.notes)
