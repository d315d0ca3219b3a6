"""`mhsa sweep show`: the report again, of what is there; and what a trial keeps for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mhsa_cli.jobs.sweep.report import formed
from mhsa_cli.records.timeline import HeadSnapshot, SnapshotRecord
from mhsa_cli.renderers.pictures.sweep import curve_of
from mhsa_cli.runs.json_file import dump_sealed
from tests.commands.shell import SMALL, facts, mhsa, tree
from tests.core.programs import PROGRAMS
from tests.core.referee import measured

GRID = [*SMALL, "eval_sequences=9", "n_heads=1,2", "--goal", "0.3"]
FIXTURES = Path(__file__).parents[1] / "fixtures/0.1.0"


def test_a_report_is_shown_again_as_it_was_and_nothing_is_written() -> None:
    swept = mhsa("sweep", *GRID, "--seeds", 7, "--name", "s")
    before = tree(Path("runs"))
    again, document = mhsa("sweep", "show", "s"), mhsa("sweep", "show", "runs/s", "--json")
    assert (swept.code, again.code, document.code) == (0, 0, 0)
    report = swept.out.replace("wrote runs/s", "")
    assert again.out.replace("folder: runs/s", "") == report and tree(Path("runs")) == before
    kept = json.loads(Path("runs/s/sweep.json").read_text())["report"]
    assert {key: document.json[key] for key in kept} == kept
    assert [group["steps_to_goal"]["watched"] for group in kept["groups"]] == [24 - 7] * 2
    assert len(kept["pairs"]) == 3 and kept["pairs"][0]["difference"]["n"] == 7


def test_a_sweep_in_training_is_shown_as_far_as_it_is() -> None:
    assert mhsa("sweep", *GRID, "--seeds", 2, "--name", "s").code == 0
    shutil.rmtree("runs/s/n_heads=2_seed=43")
    sweep = Path("runs/s/sweep.json")
    plan = json.loads(sweep.read_text())
    del plan["report"], plan["sha256"]
    sweep.write_text(json.dumps(plan))
    found = mhsa("sweep", "show", "s", "--json").json
    assert [group["success"]["n"] for group in found["groups"]] == [2, 1]
    assert [run["status"] for run in found["runs"]] == ["finished"] * 3 + ["missing"]


@pytest.mark.parametrize(
    "arguments",
    [["show"], ["show", "a", "b"], ["show", "s", "--seeds", 3], ["show", "s", "--seeds", 0], ["show", "lr=1"]],
)
def test_show_takes_one_sweep_that_exists(arguments: list[object]) -> None:
    said = mhsa("sweep", *arguments)
    assert said.code == (4 if arguments == ["show", "lr=1"] else 2) and not said.out


@pytest.mark.parametrize(
    "content", [{"circuit": ""}, {"onsets": {"nothing:shown": None}, "drop": None, "circuit": "nothing:shown"}, {}]
)
def test_a_trial_with_other_content_is_damaged_or_read_without_it(content: dict[str, object]) -> None:
    assert mhsa("sweep", *GRID, "--seeds", 1, "--name", "s").code == 0
    run = Path("runs/s/n_heads=1_seed=42/run.json")
    info = json.loads(run.read_text())
    del info["sha256"]
    run.write_bytes(dump_sealed({**info, "sweep": {**info["sweep"], "formed": content}}))
    found = mhsa("sweep", "show", "s", "--json").json["runs"][0]
    assert found["status"] == ("damaged" if content == {"circuit": ""} else "finished")
    unknown = {"onsets": {}, "drop": None, "circuit": ""}
    assert found["formed"] == (unknown if "onsets" in content else None)
    run.write_text("x")
    assert mhsa("sweep", "show", "s", "--json").json["runs"][0]["status"] == "damaged"
    assert mhsa("sweep", "show", "s").code == 0


@pytest.mark.parametrize("era", ["first", "last"])
def test_sweeps_of_the_first_version_are_shown(era: str) -> None:
    shutil.copytree(FIXTURES / era, "runs")
    found = mhsa("sweep", "show", "sweep", "--json")
    assert found.code == 0, found.err
    runs = {run["seed"]: run for run in found.json["runs"] if run["run"].endswith("lr=0.05_seed=42")}
    # Three recorded batches are too few to show the goal, as that version did: its last evaluation shows it.
    assert runs[42]["steps_to_goal"] == 100 and found.json["groups"][0]["success"]["k"] == 1
    assert mhsa("sweep", "show", "sweep").code == 0


def test_the_circuit_of_a_model_is_that_of_its_headline() -> None:
    found = measured(next(one for one in PROGRAMS if one.name == "induction, two copies"))
    heads = [HeadSnapshot(head.layer, head.head, {"previous": 0.1}, None) for head in found.heads]
    when = formed(found, [SnapshotRecord(0, heads)], [])
    assert when.circuit in when.onsets and when.circuit.startswith("induction")


def test_the_curve_is_that_of_the_run_of_median_loss() -> None:
    trials = [(3.0, [[1, 9.0], [2, 8.0]]), (1.0, [[1, 5.0], [2, 4.0]]), (2.0, [[1, 7.0], [2, 6.5]])]
    title, steps, line, low, high = curve_of("a", trials)
    assert (title, steps, line) == ("a", [1, 2], [7.0, 6.5]) and (low[0], high[1]) == (6.0, 7.25)


def test_a_trial_keeps_when_its_heads_formed_as_the_timeline_shows_it() -> None:
    settings = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "n_heads=2", "epochs=4"]
    settings += ["steps_per_epoch=60", "batch_size=16", "lr=0.02", "eval_sequences=32"]
    assert mhsa("sweep", *settings, "--seeds", 1, "--name", "s").code == 0
    entry = facts(Path("runs/s/seed=42"))["sweep"]
    timeline = mhsa("timeline", "s/seed=42", "--json").json
    onsets = [head["onset"] for head in timeline["heads"] if head["label"] and head["onset"]]
    first = min(onsets, key=lambda onset: (onset["low"], onset["high"]))
    assert entry["formed"]["onsets"] and first in entry["formed"]["onsets"].values()
    drop = entry["formed"]["drop"]
    assert {"step": drop["step"], "nats": drop["nats"], **drop["interval"]} == timeline["largest_drop"]
    assert entry["formed"]["circuit"] == ""
    assert entry["reached"] is not None
    # A trial that `mhsa train --resume` finished has no such entry; it is read from the run's files.
    run = Path("runs/s/seed=42/run.json")
    info = json.loads(run.read_text())
    del info["sweep"], info["sha256"]
    run.write_bytes(dump_sealed(info))
    found = mhsa("sweep", "show", "s", "--json").json["runs"][0]
    assert found["formed"] == entry["formed"] and found["steps_to_goal"] == entry["reached"]
