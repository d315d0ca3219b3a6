"""Grade an attention block from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mhsa_cli.api.settings import plain_value
from mhsa_cli.api.shown import ShownGrade
from mhsa_cli.config.scalars import write
from mhsa_cli.jobs.grade.blocks import Row, check_options, check_readable
from mhsa_cli.jobs.grade.runner import Limits, grade_all
from mhsa_cli.jobs.guest import as_guest
from mhsa_cli.records.check import GradeOptions


def grade(
    block: str | Callable[..., Any],
    *,
    causal: bool | None = None,
    order: str | None = None,
    rope: str | None = None,
    d_model: int | None = None,
    n_heads: int | None = None,
    seq_len: int | None = None,
    arguments: Mapping[str, Any] | None = None,
    seconds: float = 30.0,
    memory: float = 4.0,
) -> ShownGrade:
    """Grade an attention block: "FILE.py:Name", a module, a class or a function. The options are those of `mhsa check`.

    A file is graded in a process of its own, within `seconds` and `memory` (GiB), and a right grade is confirmed by
    another one. An object is graded as a copy, here: without limits, and confirmed by no other process; its weights
    and your variables stay as they are. Raises: UsageError if a file cannot be read.
    """
    pairs = [f"{key}={write(plain_value(key, value))}" for key, value in (arguments or {}).items()]
    options = GradeOptions(causal, order, rope, d_model, n_heads, seq_len, tuple(pairs))
    with as_guest():
        check_options(options)
        if not isinstance(block, str):
            from mhsa_cli.jobs.grade.here import grade_here

            return ShownGrade.of(grade_here(block, options))
        check_readable(block)
        [result] = grade_all([Row(block, block)], options, Limits(seconds, memory), 1, lambda _: None)
        if result.error is not None:
            raise result.error
        return ShownGrade.of(result.grade)
