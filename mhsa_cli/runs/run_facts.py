"""The schemas of run.json and sweep.json: readers need not check the kind of a value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.records.training import EndedBy
from mhsa_cli.runs.codec import COUNT, NUMBER, TEXT, YES_NO, ContentError, Kind, Schema, check, is_count, is_number

POINT = Kind("a step and a loss", lambda v: isinstance(v, list) and len(v) == 2 and is_count(v[0]) and is_number(v[1]))
SPAN = Kind(
    "two steps, or null",
    lambda v: v is None or (isinstance(v, dict) and is_count(v.get("low")) and is_count(v.get("high"))),
)
RULE = Kind("stop_at or patience", lambda value: value in get_args(EndedBy))
SETTINGS = Kind("an object", lambda value: isinstance(value, dict))

RUN_FACTS: dict[str, Schema] = {
    **dict.fromkeys(("mhsa", "status", "started", "task", "device", "torch", "cpu", "no_maps"), TEXT),
    **dict.fromkeys(("text_sha256", "weights_sha256", "eval_rows_sha256"), TEXT),
    **dict.fromkeys(("order", "step", "total_steps", "parameters", "seed", "n_heads", "threads"), COUNT),
    **dict.fromkeys(("eval_rows", "eval_rows_seen"), COUNT),
    "ended_by": RULE,
    "seconds": NUMBER,
    "command": [TEXT],
    "chance": {"loss": NUMBER, "accuracy": NUMBER},
    "baselines": {"*": NUMBER},
    "final": {"eval_loss": NUMBER, "eval_accuracy": NUMBER, "step": COUNT},
    "changes": [{"step": COUNT, "settings": [TEXT]}],
    **dict.fromkeys(("attention", "own_task"), {"file": TEXT, "name": TEXT, "sha256": TEXT}),
    "init": {"file": TEXT, "sha256": TEXT},
    "sweep": {
        **dict.fromkeys(("cell", "seed", "reached", "steps_to_goal"), COUNT),  # the last: of older versions
        "formed": {"onsets": {"*": SPAN}, "drop": {"step": COUNT, "nats": NUMBER, "interval": SPAN}, "circuit": TEXT},
        **dict.fromkeys(("labels", "label_ids"), [TEXT]),
        "curve": [POINT],
        "message": TEXT,
        "cause": TEXT,
        "again": YES_NO,
    },
    "files": {"*": {"size": COUNT, "sha256": TEXT}},
}
SWEEP_FACTS: dict[str, Schema] = {
    "command": [TEXT],
    "goal": NUMBER,
    "started": NUMBER,
    **dict.fromkeys(("attention", "texts", "tasks"), {"*": TEXT}),
    "cells": [{"overrides": {"*": TEXT}, "config": SETTINGS, "seeds": COUNT}],
    "report": {"runs": [{"run": TEXT, "weights_sha256": TEXT}]},
}


def check_facts(content: Mapping[str, Any], facts: Mapping[str, Schema], path: Path, hint: str) -> None:
    """Check that every value of a document is of its kind. Raises: DamageError."""
    try:
        check(dict(facts), content)
    except ContentError as error:
        raise DamageError((path, IS, f"damaged: {error}"), hint, "value") from None
