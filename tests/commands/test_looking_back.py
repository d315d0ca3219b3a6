"""mhsa curve, runs, tasks, and mhsa itself."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import xml.etree.ElementTree
from hashlib import sha256
from pathlib import Path

import pytest

from mhsa_cli import __version__
from mhsa_cli.config.load import load_config
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.tasks.base import fixed_batch
from tests.commands.shell import facts, metrics, mhsa

EMPTY_HINT = "train one: mhsa train"


def test_curve_of_one_run(tiny: Path) -> None:
    said = mhsa("curve", "tiny")
    assert said.code == 0 and said.err == ""
    for text in ("loss (nats)", "train", "eval", "chance 2.40", "accuracy", "next: mhsa inspect-heads tiny"):
        assert text in said.out, text
    document = mhsa("curve", "tiny", "--json").json
    assert document.keys() == {"runs"} and [run["run"] for run in document["runs"]] == ["runs/tiny"]
    found = {series["role"]: (series["steps"], series["loss"]) for series in document["runs"][0]["series"]}
    records = metrics(tiny)
    for role, kind in (("train", "step"), ("eval", "eval")):
        points = [(r["step"], r["loss"]) for r in records if r["kind"] == kind]
        assert found[role] == tuple(map(list, zip(*points, strict=True)))


def test_the_rows_of_an_evaluation_have_one_digest_wherever_they_are_the_same(tiny: Path) -> None:
    def digest(name: str, *more: str) -> str:
        document = mhsa("train", "--config", "tiny.yaml", "epochs=0", "--name", name, *more, "--json").json
        curve = mhsa("curve", name, "--json").json["runs"][0]
        keys = ("eval_rows", "eval_rows_seen", "eval_rows_sha256", "dropped_records")
        assert [document[key] for key in keys] == [curve[key] for key in keys]
        return str(document["eval_rows_sha256"])

    config = load_config("tiny.yaml", [])
    rows = fixed_batch(build_task(config.task), 8, "eval", 9)
    by_hand = sha256()
    for ids in (rows.inputs, rows.targets):
        by_hand.update(b"(9, 6) int64\n")
        by_hand.update(struct.pack("<54q", *(number for row in ids.tolist() for number in row)))
    assert facts(tiny)["eval_rows_sha256"] == digest("heads", "n_heads=2", "lr=0.1", "batch_size=3")
    assert facts(tiny)["eval_rows_sha256"] == by_hand.hexdigest()
    others = [digest("seed", "seed=9"), digest("rows", "eval_sequences=10"), digest("task", "task.name=repeat")]
    assert len({*others, by_hand.hexdigest()}) == 4


def test_curves_of_several_runs_lie_over_each_other(tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "--name", "two", "train.seed=1").code == 0
    said = mhsa("curve", "tiny", "two", "tiny")
    assert said.code == 0 and "tiny" in said.out and "two" in said.out and "chance 2.40" in said.out
    assert said.out == mhsa("curve", "--log", "tiny", "two").out != mhsa("curve", "--linear", "tiny", "two").out
    assert mhsa("curve", "tiny").out == mhsa("curve", "--linear", "tiny").out != mhsa("curve", "--log", "tiny").out
    names = [run["run"] for run in mhsa("curve", "two", "tiny", "--json").json["runs"]]
    assert names == ["runs/two", "runs/tiny"]
    assert mhsa("curve").out == mhsa("curve", "two").out  # the newest
    assert mhsa("train", "epochs=1", "steps_per_epoch=2", "--name", "other").code == 0
    assert "chance" not in mhsa("curve", "tiny", "other").out  # it would be another line for each
    said = mhsa("curve", "tiny", "none")
    assert (said.code, said.out) == (4, "") and "mhsa runs" in said.err


def test_a_curve_in_a_file(tiny: Path) -> None:
    said = mhsa("curve", "tiny", "--json", "-o", "a.svg")
    assert said.code == 0 and said.json and "wrote a.svg" in said.err
    text = "".join(xml.etree.ElementTree.parse("a.svg").getroot().itertext())
    assert "loss of tiny" in text and "chance" in text
    assert mhsa("curve", "tiny", "-o", "a.gif").code == 2


def test_runs_are_listed_newest_first_with_how_they_ended(tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "--name", "b", "n_heads=4").code == 0
    (Path("runs") / "notes").mkdir()
    (Path("runs") / "torn").mkdir()
    (Path("runs") / "torn" / "run.json").write_text("{")
    (Path("runs") / "a file").write_text("")
    said = mhsa("runs", "--json")
    assert [(row["run"], row["status"].split(":")[0]) for row in said.json] == [
        *(("runs/b", "finished"), ("runs/tiny", "finished"), ("runs/torn", "damaged"), ("runs/notes", "damaged"))
    ]
    first = said.json[0]
    info = facts(Path("runs/b"))
    assert (first["task"], first["n_heads"], first["step"], first["seed"]) == ("shift", 4, 10, 8)
    assert (first["eval_loss"], first["eval_accuracy"]) == tuple(
        info["final"][k] for k in ("eval_loss", "eval_accuracy")
    )
    assert all(first[key] == info[key] for key in ("weights_sha256", "parameters", "seconds", "started"))
    shown = mhsa("runs")
    lines = shown.out.splitlines()
    assert shown.code == 0 and lines[1].split()[:5] == ["b", "finished", "shift", "4", "10"]
    assert lines[2].startswith("tiny ") and lines[3].startswith("torn ") and "damaged" in lines[3]
    assert f"{first['eval_loss']:.4f}" in lines[1] and f"{first['eval_accuracy']:.1%}" in lines[1]


def test_no_runs_yet(here: Path) -> None:
    for place in (["runs"], ["runs", "--runs", "nowhere"]):
        said = mhsa(*place)
        assert said.code == 0 and EMPTY_HINT in said.out
        assert mhsa(*place, "--json").json == []
    for command in (["curve"], ["inspect-heads"], ["train", "--resume", "newest"]):
        said = mhsa(*command)
        assert said.code == 4 and said.out == "" and EMPTY_HINT in said.err
    (here / "runs").write_text("a file")
    assert mhsa("runs").code == mhsa("train", "--config", "tiny.yaml").code == 5


def test_the_newest_is_the_one_started_last_whatever_the_clock_says(tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "--name", "b").code == 0
    os.utime(tiny / "run.json")
    edited = {**facts(tiny), "started": "2099-01-01T00:00:00+00:00"}
    (tiny / "run.json").write_text(json.dumps(edited))
    shutil.copytree(tiny, Path("runs/zz"))
    assert mhsa("inspect-heads", "--json").json["run"] == "runs/b"


def test_tasks_are_drawn_as_rows() -> None:
    found = mhsa("tasks", "--json").json
    assert [task["name"] for task in found] == list(TASK_SCHEMAS)
    shown = mhsa("tasks").out
    for task in found:
        assert len(task["inputs"]) == len(task["targets"]) > 2 and task["summary"] in shown
        assert 0 < task["chance_accuracy"] < 1 and 0 < task["chance_loss"] < 10 and task["name"] in shown
    repeat = next(task for task in found if task["name"] == "repeat")
    assert repeat["inputs"] == repeat["targets"]
    assert repeat["chance_loss"] == pytest.approx(-math.log(repeat["chance_accuracy"]))
    shift = next(task for task in found if task["name"] == "shift")
    answered = [(i, t) for i, t in enumerate(shift["targets"]) if t != "·"]
    assert len(answered) >= 3 and shift["inputs"] != shift["targets"]


def test_mhsa_itself() -> None:
    version = mhsa("--version")
    assert (version.code, version.out, version.err) == (0, f"mhsa {__version__}\n", "")
    bare, asked = mhsa(), mhsa("--help")
    assert bare.code == asked.code == 0
    for said in (bare, asked):
        text = said.out + said.err
        for command in ("train", "inspect-heads", "curve", "runs", "tasks", "config"):
            assert command in text
        assert "╭─ Error" not in text
    for wrong in (["nope"], ["train", "--nope"], ["runs", "a", "b"], ["train", "--resume"]):
        said = mhsa(*wrong)
        assert (said.code, said.out) == (2, "") and said.err
