"""Runs and sweeps that older programs wrote, byte for byte: every command opens them and finds what was measured then.

All are of format 1. `first` is a run from before heads were measured and a sweep from before files were hashed; `last`
is of the program that lists hashes, but does not say yet to which run a part belongs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.runs.older_keys import rename_heads
from tests.commands.shell import facts, metrics, mhsa, tree

FIXTURES = Path(__file__).parents[1] / "fixtures/0.1.0"
RUN, TRIALS = "run", {"sweep/lr=0.05_seed=42": "0.05", "sweep/lr=0.02_seed=42": "0.02"}


@pytest.fixture(params=["first", "last"])
def era(request: pytest.FixtureRequest, here: Path) -> str:
    """Change to a folder with a copy of what that program wrote."""
    shutil.copytree(FIXTURES / request.param, here / "runs")
    return str(request.param)


def final(run: str) -> dict[str, Any]:
    """What run.json says of a run's end."""
    info = facts(Path("runs") / run)
    return {"step": info["step"], "weights": info["weights_sha256"], **info["final"]}


def _within(old: Any, new: Any) -> bool:
    """Whether every value of old data is the same in new data."""
    if isinstance(old, dict):
        return all(key in new and _within(value, new[key]) for key, value in old.items())
    return bool(old == new)


def test_what_was_measured_is_read_as_it_was_written(era: str) -> None:
    before = tree(Path("runs"))
    for run, labels in ((RUN, ["offset:4:shown", "focused"]), *((trial, ["offset:4:shown"]) for trial in TRIALS)):
        written = json.loads(Path("runs", run, "heads.json").read_text())
        unmeasured = (era, run) == ("first", RUN)  # it is measured as soon as somebody asks
        found = mhsa("inspect-heads", run, "--json").json
        assert (found["step"], found["tokens"]) == (written["step"], written["tokens"])
        assert [head["label_id"] for head in found["heads"]] == labels
        for head, then in zip(found["heads"], rename_heads(written)["heads"], strict=True):
            if not unmeasured:  # the words are those of today, the parts are claims, and what was not measured is null
                assert _within(
                    {**then, "label": head["label"], "evidence_parts": None}, {**head, "evidence_parts": None}
                )
            assert unmeasured or [claim["text"] for claim in head["claims"]] == then["evidence_parts"]
        assert unmeasured or found["weights"] == written["weights"]
        assert mhsa("explain", run).code == mhsa("inspect-heads", run, "--scores").code == 0
        measured = [record["loss"] for record in metrics(Path("runs") / run) if record["kind"] == "eval"]
        series = {one["role"]: one["loss"] for one in mhsa("curve", run, "--json").json["runs"][0]["series"]}
        assert series["eval"] == measured and measured[-1] == final(run)["eval_loss"]
        assert mhsa("runs", run, "--json").json["weights_sha256"] == final(run)["weights"]
        assert mhsa("timeline", run, "--json").code == (4 if unmeasured else 0)
    assert {name: file for name, file in tree(Path("runs")).items() if name in before} == before


def test_its_weights_are_read(era: str) -> None:
    said = mhsa("generate", RUN, "--prompt", "1 4 5 2 |", "--max-new-tokens", 3, "--json").json
    assert said["tokens"][:3] == [1, 4, 5]  # it copies
    assert mhsa("export", RUN, "--to", "npz", "-o", "run.npz").code == 0
    matches = mhsa("compare", RUN, next(iter(TRIALS)), "--json").json["matches"]
    assert [(pair["first"], pair["second"]) for pair in matches["pairs"]] == [("L0.H0", "L0.H0")]


def test_every_part_is_whole(era: str) -> None:
    for whole, own in ((RUN, "run.json"), ("sweep", "sweep.json"), *((trial, "run.json") for trial in TRIALS)):
        found = mhsa("verify", whole, "--json")
        assert (found.code, found.json["ok"]) == (0, True), found.out
        states = {check["name"]: check["state"] for check in found.json["checks"]}
        assert states[own] == ("note" if era == "first" else "ok")  # nothing to compare in what had no hashes


def test_a_run_goes_on_where_it_ended(era: str) -> None:
    before = metrics(Path("runs", RUN))
    assert mhsa("train", "--resume", RUN, "epochs=2").code == 0
    assert metrics(Path("runs", RUN))[: len(before)] == before
    assert final(RUN)["step"] == 240 and final(RUN)["eval_loss"] < before[-1]["eval_loss"]
    assert mhsa("verify", RUN).code == 0


def test_a_sweep_trains_what_is_missing_of_it(era: str) -> None:
    """The trial that is trained again reaches its figures; the other one keeps those it has."""
    gone, kept = TRIALS
    then = {trial: final(trial) for trial in TRIALS}
    shutil.rmtree(Path("runs", gone))
    said = mhsa("sweep", "--resume", "sweep", "--json")
    assert said.code == 0, said.err
    rows = {Path(row["run"]).name: row for row in said.json["runs"]}
    assert {row["status"] for row in rows.values()} == {"finished"}
    assert rows[Path(kept).name]["final_loss"] == then[kept]["eval_loss"]
    assert rows[Path(gone).name]["final_loss"] == pytest.approx(then[gone]["eval_loss"], rel=1e-2)
    assert [group["overrides"]["train.lr"] for group in said.json["groups"]] == list(TRIALS.values())
    assert [row["labels"] for row in rows.values()] == [["offset 4"]] * 2
    assert final(kept) == then[kept]
