"""Grade a source that is only text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from mhsa_cli.check import confirm
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.source.load import load
from mhsa_cli.records.check import Grade, GradeOptions

SEED = 5


def grade_text(source: str, entry: str, folder: Path, beside: Mapping[str, str] | None = None, **options: Any) -> Grade:
    """Write a source into a file of a folder, others beside it, and grade what it calls `entry`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "block.py"
    path.write_text(source)
    for name, text in (beside or {}).items():
        (folder / name).write_text(text)
        sys.modules.pop(Path(name).stem, None)  # that of another grade
    with mock.patch.object(sys, "path", list(sys.path)):
        return grade_block(f"{path}:{entry}", GradeOptions(**options))


def grade_block(block: str, options: GradeOptions) -> Grade:
    """Grade FILE:NAME; one that is right has to be confirmed, as `mhsa check` does it."""
    contexts: list[Context] = []
    result = confirm.grade(load(block), options, on_context=contexts.append)
    if result.passed:
        claimed = confirm.claim(contexts[0])
        laws = [(law.id, law.passed) for law in result.laws]
        answered = confirm.answer(contexts[0], claimed, SEED)
        refused = confirm.refusal(laws, claimed, SEED, answered, options.causal)
        assert refused is None, (block, refused)
    return result


def names_of(result: Grade) -> set[str]:
    """List the faults that were named, without the remark that a block has no mask."""
    return {fault.id for fault in result.faults if not (fault.edge and fault.id == "mask_missing")}


def described(result: Grade) -> str:
    """Describe a grade in the message of an assertion."""
    failed = [f"{law.id}: {law.finding}" for law in result.laws if law.passed is False]
    tries = [one.text for one in result.tried]
    return f"{result.verdict}; named {sorted(names_of(result))}; failed {failed}; tried {tries}"
