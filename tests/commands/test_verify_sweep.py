"""mhsa verify and its neighbours on a sweep: trials without a result, a plan that was lost, trials as runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.records.formats import FORMAT
from mhsa_cli.runs import disk
from mhsa_cli.runs.json_file import dump_sealed
from mhsa_cli.runs.listing import load_info
from tests.commands.shell import TINY, codes_without_torch, mhsa, tree
from tests.commands.test_verify_command import flip, states


def test_trials_of_a_sweep_have_their_hashes(here: Path) -> None:
    assert mhsa("sweep", "--config", "tiny.yaml", "n_heads=2,3", "--seeds", 1, "--name", "s").code == 0
    trial = Path("runs/s/n_heads=2_seed=8")
    assert states("s/n_heads=2_seed=8")["metrics.jsonl"] == "ok"
    assert "files" in json.loads((trial / "run.json").read_text())
    assert states("s") == {"sweep.json": "ok", trial.name: "ok", "n_heads=3_seed=8": "ok"}
    assert codes_without_torch(["verify", "s"], ["verify", trial, "--json"]) == [0, 0]
    flip(trial / "metrics.jsonl", 60)
    said = mhsa("verify", "s")
    assert said.code == 4 and f"runs/s is damaged: {trial.name}\n" in said.err and "metrics.jsonl" in said.out
    assert mhsa("curve", "s/n_heads=2_seed=8").code == mhsa("verify", trial).code == 4
    flip(Path("runs/s/sweep.json"), 40)
    assert states("s")["sweep.json"] == "wrong"
    said = mhsa("sweep", "--resume", "s")
    assert said.code == 4 and "sweep.json" in said.err


def trials_note(document: Any) -> Any:
    return next((check for check in document["checks"] if check["name"] == "trials"), None)


@pytest.fixture(scope="module")
def trained_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of 2 settings with 3 seeds, all trained."""
    root = tmp_path_factory.mktemp("grid")
    (root / "tiny.yaml").write_text(TINY)
    steps = ["train.epochs=1", "train.steps_per_epoch=2", "train.warmup_steps=1"]
    grid = ["--config", root / "tiny.yaml", "n_heads=2,3", *steps, "--seeds", 3]
    assert mhsa("sweep", *grid, "--name", "g", "--runs", root / "runs").code == 0
    return root / "runs" / "g"


@pytest.fixture
def grid(trained_grid: Path, here: Path) -> Path:
    """A copy of that sweep in ./runs."""
    shutil.copytree(trained_grid, "runs/g")
    return Path("runs/g")


def test_trials_of_a_sweep_without_a_result_are_named(grid: Path) -> None:
    assert trials_note(mhsa("verify", "g", "--json").json) is None
    shutil.rmtree(grid / "n_heads=2_seed=9")
    stopped, killed, failed = (grid / f"n_heads=3_seed={seed}" for seed in (8, 9, 10))
    for trial, status, own in [
        (stopped, "stopped", {}),
        (killed, "running", {}),
        (failed, "failed", {"sweep": {"message": "a bad number", "cause": "nonfinite"}}),
    ]:
        shutil.rmtree(trial / "checkpoints")
        (trial / "run.json").write_text(json.dumps({"format": 1, "status": status, "step": 2, **own}))
        for name in ("heads.json", "heads.jsonl", "metrics.jsonl"):
            (trial / name).unlink(missing_ok=True)
    shutil.copytree(grid / "n_heads=2_seed=8" / "checkpoints", stopped / "checkpoints")
    document = mhsa("verify", "g", "--json").json
    found = {check["name"]: check["found"] for check in document["checks"]}
    assert trials_note(document)["state"] == "note"
    told = found["trials"]
    assert told.startswith("2 of 6 finished; missing: n_heads=2_seed=9; ") and "failed: n_heads=3_seed=10" in told
    assert "interrupted: n_heads=3_seed=9" in told and told.endswith("continue: mhsa sweep --resume g")
    assert found[killed.name].startswith("interrupted at step 2; ") and "no checkpoint yet" in found[killed.name]
    assert found[failed.name].startswith("failed at step 2: a bad number; ") and "None" not in str(found)
    shutil.rmtree(stopped)
    said = mhsa("verify", "g")
    assert said.code == 0 and "missing: n_heads=2_seed=9, n_heads=3_seed=8" in " ".join(said.out.split())
    assert mhsa("sweep", "--resume", "g").code == 3
    assert trials_note(mhsa("verify", "g", "--json").json)["found"] == "5 of 6 finished; failed: n_heads=3_seed=10"


@pytest.mark.parametrize("what", ["flipped", "gone"])
def test_a_sweep_whose_plan_is_lost_has_its_trials(what: str, grid: Path) -> None:
    flip(grid / "sweep.json", 40) if what == "flipped" else (grid / "sweep.json").unlink()
    said = mhsa("verify", "g")
    assert said.code == 4 and "runs/g is damaged: sweep.json\n" in said.err
    document = mhsa("verify", "g", "--json").json
    assert [check["state"] for check in document["checks"]] == ["wrong", *["ok"] * 6]
    assert document["usable"] == ["its 6 trials are runs: mhsa explain g/n_heads=2_seed=10"]
    assert mhsa("explain", "g/n_heads=2_seed=10").code == 0
    said = mhsa("sweep", "--resume", "g")
    assert said.code == 4 and "sweep.json" in said.err and "mhsa verify runs/g" in said.err


def test_a_sweep_is_no_run_and_is_not_a_dead_end(grid: Path) -> None:
    said = mhsa("generate", "g", "--prompt", "1")
    assert said.code == 4, said
    assert "runs/g is a sweep; its trials are runs: g/n_heads=2_seed=10, " in said.err
    assert "... (6 in all)" in said.err and "mhsa runs --runs runs/g" in said.err
    assert "mhsa runs --runs runs/g" in mhsa("curve").err  # no run here but those
    line = "sweep: g (6 trials): mhsa runs --runs runs/g\n"
    assert mhsa("runs").out.endswith(f"no run in runs yet; train one: mhsa train task.name=copy\n{line}")
    assert mhsa("train", "--config", "tiny.yaml", "--name", "alone").code == 0
    assert mhsa("runs").out.endswith(line) and [one["run"] for one in mhsa("runs", "--json").json] == ["runs/alone"]
    assert mhsa("verify", "--runs", "runs/g", "n_heads=2_seed=10").code == 0  # a name, though it looks like a setting
    inside = mhsa("runs", "--runs", "runs/g")
    assert inside.code == 0 and inside.out.count("n_heads=3_seed=") == 3 and "sweep:" not in inside.out


def statuses(sweep: str) -> tuple[int, dict[str, str]]:
    """How `sweep --resume` ended, and each trial's status in its report."""
    said = mhsa("sweep", "--resume", sweep, "--json")
    return said.code, {Path(row["run"]).name: row["status"] for row in said.json["runs"]}


def test_a_trial_is_not_known_by_its_name(grid: Path) -> None:
    """A trial that was trained on and a finished run that was moved in are left out, kept, and named by verify."""
    on, other = grid / "n_heads=2_seed=9", grid / "n_heads=3_seed=10"
    assert mhsa("train", "--resume", on, "train.epochs=2").code == 0
    shutil.rmtree(other)
    shutil.copytree(grid / "n_heads=2_seed=8", other)
    before = {folder: tree(folder) for folder in (on, other)}
    code, found = statuses("g")
    assert code == 4 and {name for name, status in found.items() if status == "excluded"} == {on.name, other.name}
    assert set(found.values()) == {"excluded", "finished"} and {folder: tree(folder) for folder in before} == before
    assert [name for name, state in states("g").items() if state == "wrong"] == [on.name, other.name]
    for folder in before:
        shutil.rmtree(folder)
    assert statuses("g") == (0, dict.fromkeys(found, "finished")) and mhsa("verify", "g").code == 0


def test_a_trial_with_other_weights_than_reported_is_left_out(grid: Path) -> None:
    trial = grid / "n_heads=3_seed=9"
    info = load_info(trial)
    (trial / "run.json").write_bytes(dump_sealed({**info, "weights_sha256": "0" * 64}))
    code, found = statuses("g")
    assert code == 4 and [name for name, status in found.items() if status == "excluded"] == [trial.name]


def test_a_trial_that_was_brought_to_its_end_by_hand_counts(grid: Path) -> None:
    trial, content = grid / "n_heads=2_seed=10", json.loads((grid / "sweep.json").read_text())
    before = {Path(row["run"]).name: row for row in content["report"]["runs"]}
    info = load_info(trial)
    (trial / "run.json").write_bytes(dump_sealed({key: info[key] for key in info if key != "sweep"}))
    said = mhsa("sweep", "--resume", "g", "--json")
    assert said.code == 0
    rows = {Path(row["run"]).name: {**row, "run": before[Path(row["run"]).name]["run"]} for row in said.json["runs"]}
    assert rows == before


def test_a_trial_of_a_newer_mhsa_stops_a_sweep_before_anything_is_touched(grid: Path) -> None:
    newer, missing = grid / "n_heads=2_seed=8", grid / "n_heads=3_seed=8"
    (newer / "run.json").write_bytes(dump_sealed({**load_info(newer), "format": FORMAT + 1}))
    shutil.rmtree(missing)
    before = tree(newer)
    assert mhsa("sweep", "--resume", "g").code == 4
    assert tree(newer) == before and not missing.exists()
    assert states("g")[newer.name] == "other version"


def test_a_trial_that_was_left_out_is_left_out_again(grid: Path) -> None:
    """The report keeps the digest that it was measured by, also while the trial does not count."""
    trial = grid / "n_heads=2_seed=8"
    (trial / "run.json").write_bytes(dump_sealed({**load_info(trial), "weights_sha256": "0" * 64}))
    for _ in range(2):
        code, found = statuses("g")
        assert (code, found[trial.name]) == (4, "excluded")
    shutil.rmtree(trial)
    assert mhsa("sweep", "--resume", "g").code == 0 and states("g")[trial.name] == "ok"


def test_a_trial_of_another_version_is_not_trained_over(grid: Path) -> None:
    trial = grid / "n_heads=3_seed=9"
    text = (trial / "config.yaml").read_text().replace("seed: 9", "seed: 9\n  of_tomorrow: 3")
    (trial / "config.yaml").write_text(text)
    info = load_info(trial)
    files = {**info["files"], "config.yaml": disk.digest([text.encode()])}
    (trial / "run.json").write_bytes(dump_sealed({**info, "files": files, "status": "stopped", "sweep": None}))
    before = tree(trial)
    assert mhsa("sweep", "--resume", "g").code == 4 and tree(trial) == before
    assert states("g")[trial.name] == "other version"


def test_a_trial_that_cannot_be_measured_again_ends_with_damage(grid: Path) -> None:
    """A trial that was ended by hand, with a curve that no hash protects and that cannot be read."""
    trial = grid / "n_heads=3_seed=10"
    info = load_info(trial)
    (trial / "run.json").write_bytes(dump_sealed({key: info[key] for key in info if key not in ("sweep", "files")}))
    (trial / "metrics.jsonl").write_text("{\n" + (trial / "metrics.jsonl").read_text())
    code, found = statuses("g")
    assert (code, found[trial.name]) == (4, "damaged")


def test_a_trial_that_broke_off_and_was_ended_by_hand_is_measured(grid: Path) -> None:
    """What the sweep noted of the break no longer holds, nor does the digest of an earlier end."""
    trial, content = grid / "n_heads=2_seed=9", json.loads((grid / "sweep.json").read_text())
    before = {Path(row["run"]).name: row for row in content["report"]["runs"]}[trial.name]
    broken = {"cell": 0, "seed": 9, "message": "no room", "cause": None}
    info = {**load_info(trial), "status": "interrupted", "sweep": broken, "weights_sha256": "0" * 64, "step": 1}
    (trial / "run.json").write_bytes(dump_sealed({**info, "files": None}))
    assert mhsa("train", "--resume", trial).code == 0
    said = mhsa("sweep", "--resume", "g", "--json")
    row = {Path(row["run"]).name: row for row in said.json["runs"]}[trial.name]
    assert said.code == 0 and {**row, "run": before["run"], "seconds": before["seconds"]} == before
