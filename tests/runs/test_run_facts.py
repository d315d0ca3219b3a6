"""Values of the wrong kind are refused with their place, in every file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.core.training.state import read_state
from mhsa_cli.errors import RunError
from mhsa_cli.jobs.sweep.plan import planned_trials
from mhsa_cli.runs.codec import Kind
from mhsa_cli.runs.json_file import DEEPEST, dump_sealed, parse_json
from mhsa_cli.runs.listing import load_info
from mhsa_cli.runs.metrics import Records, records_of
from mhsa_cli.runs.run_facts import RUN_FACTS, SWEEP_FACTS, check_facts
from tests.refusals import refusal

PATH = Path("some/file")
ANY: list[Any] = [None, True, 0, -1, 0.5, 10**30, float("nan"), "x", [], [None], [[]], {}, {"a": 1}, {"step": "x"}]
CELL = {"overrides": {"a": "1"}, "config": {"task": {"name": "copy"}, "model": {}, "train": {"seed": 3}}, "seeds": 2}
STATE = {"format": 1, "step": 7, "seed": 5, "epoch_loss_sum": 0.5, "config": {"train": {"epochs": 2}}}


@pytest.mark.parametrize("facts", [RUN_FACTS, SWEEP_FACTS])
def test_each_value_is_asked_for_its_kind(facts: dict[str, Any]) -> None:
    for key, wanted in facts.items():
        kinds = 0
        for value in ANY:
            fits = value is None or (wanted.fits(value) if isinstance(wanted, Kind) else type(value) is type(wanted))
            try:
                check_facts({key: value, "of the future": value}, facts, PATH, "a way out")
                assert fits
            except RunError as error:
                assert (error.code, error.path, error.hint) == ("value", PATH, "a way out") and key in error.message
                assert not fits or isinstance(value, list | dict) and value
                kinds += 1
        assert kinds > 4


@pytest.mark.parametrize(
    ("inside", "place"),
    [
        ({"final": {"eval_loss": "x"}}, "final.eval_loss"),
        ({"changes": [{"step": 1}, {"step": -1}]}, "changes[1].step"),
        ({"sweep": {"curve": [[1, 2.5], [2, "x"]]}}, "sweep.curve[1]"),
        ({"files": {"a": None}}, "files.a"),
        ({"command": ["a", 5]}, "command[1]"),
    ],
)
def test_values_inside_others_are_named_by_their_place(inside: dict[str, Any], place: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(dump_sealed({"format": 1, "status": "finished", **inside}))
    error = refusal(lambda: load_info(tmp_path))
    assert (error.code, error.path) == ("value", tmp_path / "run.json") and error.hint is not None
    assert f" {place} is " in error.message


@pytest.mark.parametrize(
    ("line", "key"),
    [
        *(({"kind": kind}, "kind") for kind in ([], {}, 5, None, [[]])),
        *(({"step": step}, "step") for step in (-1, 1.0, True, "1", [], 2**63)),
        *(({"loss": loss}, "loss") for loss in (True, "1", [], 10**400)),
    ],
)
def test_a_record_is_named_by_its_line(line: dict[str, Any], key: str) -> None:
    whole = {"kind": "step", "step": 1, "loss": 0.5, "accuracy": 0.5, "lr": 0.5}
    data = b"".join(json.dumps(one).encode() + b"\n" for one in (whole, {**whole, **line}))
    error = refusal(lambda: list(records_of(Records(PATH, lambda: io.BytesIO(data)))))
    assert error.code == "record" and error.message.startswith(f"{PATH}:2: ") and f"{key} is " in error.message


@pytest.mark.parametrize(
    "change",
    [
        *({"cells": cells} for cells in (None, [], {}, [5], "x", [{**CELL, "seeds": 0}], [{**CELL, "seeds": 10**12}])),
        *({"cells": [{**CELL, "overrides": value}]} for value in (None, [1])),
        *({"cells": [{**CELL, "config": value}]} for value in (None, {"train": 5}, {"train": {"seed": "x"}})),
        *({"goal": goal} for goal in (None, "x", True)),
    ],
)
def test_a_malformed_plan_is_refused(change: dict[str, Any]) -> None:
    plan = {"cells": [CELL], "goal": 0.5}
    assert [trial.name for trial in planned_trials(plan)] == ["a=1_seed=3", "a=1_seed=4"]
    with pytest.raises(RunError):
        check_facts({**plan, **change}, SWEEP_FACTS, PATH, "")
        planned_trials({**plan, **change})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("step", value) for value in (-1, 2**63, True, "7", None, [], 7.0)),
        *(("seed", value) for value in (-1, "5", {})),
        *(("epoch_loss_sum", value) for value in ("x", None, {}, True)),
        *(("config", value) for value in (5, [], {"train": 5})),
    ],
)
def test_a_state_is_asked_for_its_kinds(key: str, value: object) -> None:
    def state(**change: object) -> dict[str, bytes]:
        return {"state.json": json.dumps({**STATE, **change}).encode()}

    assert read_state(state(), 7) == STATE
    with pytest.raises(RunError, match=key):
        read_state(state(**{key: value}))
    with pytest.raises(RunError, match="step"):
        read_state(state(), 8)


def test_nesting_has_an_end() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert parse_json(nested(DEEPEST), PATH)
    for levels in (DEEPEST + 1, 400, 100_000):
        with pytest.raises(RunError):
            parse_json(nested(levels), PATH)
