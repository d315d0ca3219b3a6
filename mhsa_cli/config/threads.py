"""`train.threads`: a number, or `auto`, which is one thread for small steps and all cores for large ones."""

from __future__ import annotations

import os
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from mhsa_cli.config.estimate import step_flop
from mhsa_cli.config.section import Expected, rule

MAX_THREADS = 1024
AUTO = 0  # stands for `auto` until the task and the model are known
MIN_FLOP = 1e9  # FLOP of a step: in smaller ones threads wait for each other longer than they compute

_WORDS = f"a whole number from 1 to {MAX_THREADS:,}, or auto"
_FORMS = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_THREADS}, {"enum": ["auto"]}]}


def _auto_or_number(value: Any) -> Any:
    if value == AUTO and value is not False:
        raise rule("value", f"found `{value}`, wanted {_WORDS}")
    return AUTO if value == "auto" else value


Threads = Annotated[
    int, BeforeValidator(_auto_or_number), Field(ge=AUTO, le=MAX_THREADS), Expected(_WORDS), WithJsonSchema(_FORMS)
]  # fmt: skip


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def best_threads(task: Any, model: Any, train: Any) -> int:
    """Return the number of threads that suits a step of this size on the CPU: a rule, not a timing."""
    on_cpu = train.device in ("auto", "cpu")
    return cores() if on_cpu and step_flop(task, model, train) >= MIN_FLOP else 1


def with_threads(task: Any, model: Any, train: Any) -> Any:
    """Return the `train` section with a number in place of `auto`."""
    return train.model_copy(update={"threads": best_threads(task, model, train)}) if train.threads == AUTO else train
