"""The state of a checkpoint says its format, and only the one this program writes is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mhsa_cli.core.training.state import read_state
from mhsa_cli.errors import NewerFormatError, RunError

STATE = {"format": 1, "step": 7, "seed": 3, "epoch_loss_sum": 0.5, "config": {}}


def files(**changes: Any) -> dict[str, bytes]:
    return {"state.json": json.dumps({**STATE, **changes}).encode()}


def test_the_format_that_is_written_is_read() -> None:
    assert read_state(files()) == STATE


@pytest.mark.parametrize("number", [0, 3, 99, True, 1.0, "1", None, [1]])
def test_another_format_is_named(number: Any) -> None:
    with pytest.raises(RunError) as refused:
        read_state(files(format=number))
    newer = type(number) is int and number > 2  # it may hold what this version does not know by name
    assert repr(number) in refused.value.message and isinstance(refused.value, NewerFormatError) == newer
    if newer:
        with pytest.raises(NewerFormatError):
            read_state({"state.json": json.dumps({"format": number}).encode()})


@pytest.mark.parametrize("key", STATE)
def test_what_a_resume_needs_is_missed(key: str) -> None:
    left = {name: value for name, value in STATE.items() if name != key}
    with pytest.raises(RunError, match=f"lacks what a resume needs .*{key}"):
        read_state({"state.json": json.dumps(left).encode()})
