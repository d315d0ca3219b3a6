"""mhsa sweep: every trial is the run alone, nothing finished is trained twice, and wrong grids cost nothing."""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path

import pytest

from tests.commands.shell import SMALL, facts, mhsa, tree
from tests.faults.client import ForkServer

GRID = [*SMALL, "eval_sequences=9", "n_heads=1,2"]


def trials(sweep: Path) -> dict[str, str]:
    """The digest of every trial's weights, by folder."""
    return {path.parent.name: str(facts(path.parent)["weights_sha256"]) for path in sorted(sweep.glob("*/run.json"))}


def test_every_trial_is_the_run_alone_whatever_trains_beside_it() -> None:
    assert mhsa("sweep", *GRID, "--seeds", 3, "--name", "one").code == 0
    found = trials(Path("runs/one"))
    assert list(found) == [f"n_heads={h}_seed={s}" for h in (1, 2) for s in (42, 43, 44)]
    assert mhsa("train", *GRID[:-1], "n_heads=2", "seed=43", "--name", "alone").code == 0
    assert facts(Path("runs/alone"))["weights_sha256"] == found["n_heads=2_seed=43"]
    assert mhsa("sweep", *GRID, "--seeds", 3, "--name", "two", "--jobs", 2).code == 0
    assert trials(Path("runs/two")) == found


SWEPT = """\
task: {name: copy, vocab_size: 12, seq_len: 6}
model: {d_model: 8}
train: {epochs: 1, steps_per_epoch: 5, batch_size: 3, eval_sequences: 9}
sweep:
  n_heads: [1, 2]
  lr: {from: 1e-3, to: 1e-2, steps: 3, scale: log}
  seeds: 2
"""


def test_a_config_with_axes_trains_them_and_its_copy_trains_them_again() -> None:
    Path("grid.yaml").write_text(SWEPT)
    refused = mhsa("train", "--config", "grid.yaml")
    assert refused.code == 2 and "grid.yaml:4:1" in refused.err and "mhsa sweep --config grid.yaml" in refused.err
    assert mhsa("sweep", "--config", "grid.yaml", "--name", "a").code == 0
    found = trials(Path("runs/a"))
    names = [f"n_heads={h}_lr={lr}_seed={s}" for h in (1, 2) for lr in ("0.003162", "1e-2", "1e-3") for s in (42, 43)]
    assert list(found) == names
    assert mhsa("sweep", "--config", "runs/a/sweep.yaml", "--name", "b").code == 0
    assert trials(Path("runs/b")) == found
    assert Path("runs/b/sweep.yaml").read_text() == Path("runs/a/sweep.yaml").read_text()
    assert mhsa("sweep", "--config", "grid.yaml", "lr=1e-3", "--seeds", 1, "--name", "c").code == 0
    assert trials(Path("runs/c")) == {f"n_heads={h}_seed=42": found[f"n_heads={h}_lr=1e-3_seed=42"] for h in (1, 2)}
    (Path("runs/a") / names[3] / "run.json").unlink()
    assert mhsa("sweep", "--resume", "a").code == 0 and trials(Path("runs/a")) == found
    assert mhsa("runs", "rm", "a", "--yes").code == 0 and not Path("runs/a").exists()


def test_a_config_with_axes_is_checked_and_shown() -> None:
    Path("grid.yaml").write_text(SWEPT)
    assert mhsa("config", "check", "grid.yaml").out == "grid.yaml: ok (sweep of 6 settings x 2 seeds, task copy)\n"
    shown = mhsa("config", "show", "grid.yaml", "lr=1e-2,0.5").out
    assert "  model.n_heads: [1, 2]\n  train.lr: [0.01, 0.5]\n  seeds: 2\n" in shown
    Path("shown.yaml").write_text(shown)
    assert mhsa("config", "show", "shown.yaml").out == shown
    assert mhsa("config", "show", "grid.yaml", "--json").json["sweep"] == {
        "model.n_heads": [1, 2],
        "train.lr": {"from": 0.001, "to": 0.01, "steps": 3, "scale": "log"},
        "seeds": 2,
    }
    Path("grid.yaml").write_text(SWEPT.replace("[1, 2]", "[1, 3]"))
    assert mhsa("config", "check", "grid.yaml").code == 2


def test_json_keeps_its_promise_and_the_files_say_the_same() -> None:
    said = mhsa("sweep", *GRID, "--seeds", 2, "--goal", "0.3", "--json")
    assert said.code == 0, said.err
    found = said.json
    assert [group["overrides"] for group in found["groups"]] == [{"model.n_heads": "1"}, {"model.n_heads": "2"}]
    for group in found["groups"]:
        assert group["models"] == group["success"]["n"] == 2
        low, high = group["success"]["wilson95"]
        assert 0 <= low <= group["success"]["k"] / 2 <= high <= 1
        assert {"estimate", "low", "high", "n", "watched"} == group["steps_to_goal"].keys()
        assert {"estimate", "low", "high", "n"} == group["final_loss"].keys()
    assert [pair["measure"] for pair in found["pairs"]] == ["steps", "loss", "success"] and len(found["runs"]) == 4
    folder = Path(found["sweep"])
    kept = json.loads((folder / "sweep.json").read_text())
    assert kept["report"]["groups"] == found["groups"]
    rows = list(csv.DictReader((folder / "sweep.csv").open()))
    assert [row["seed"] for row in rows] == ["42", "43", "42", "43"] and {row["status"] for row in rows} == {"finished"}


def test_trials_are_ordinary_runs() -> None:
    assert mhsa("sweep", *GRID, "--seeds", 1, "--name", "s").code == 0
    for command in ("inspect-heads", "explain", "timeline", "curve"):
        assert mhsa(command, "s/n_heads=2_seed=42").code == 0
        assert mhsa(command, "runs/s/n_heads=2_seed=42").code == 0
    assert "no run in runs yet" in mhsa("runs").out


def test_resume_trains_what_is_missing_and_nothing_else() -> None:
    assert mhsa("sweep", *GRID, "--seeds", 2, "--name", "s").code == 0
    sweep = Path("runs/s")
    whole = trials(sweep)
    broken = sweep / "n_heads=2_seed=42" / "run.json"
    broken.write_text(json.dumps({**json.loads(broken.read_text()), "status": "interrupted"}))
    kept = {path.name: tree(path) for path in sweep.iterdir() if path.is_dir() and path != broken.parent}
    said = mhsa("sweep", "--resume", "s")
    assert said.code == 0 and "4 trials, 3 finished" in said.err
    assert trials(sweep) == whole
    assert {path.name: tree(path) for path in sweep.iterdir() if path.is_dir() and path != broken.parent} == kept
    assert "trials 4" not in mhsa("sweep", "--resume", "s").err  # nothing is left to do


def hold(patch: pytest.MonkeyPatch, sweep: str, first: str) -> None:
    """Take no further step once a file is there."""
    from mhsa_cli.core.training.stack import Stack

    real = Stack.step

    def instead(self: Stack, *given: object, **more: object) -> None:
        while list(Path(sweep).glob(first)):
            time.sleep(0.002)
        real(self, *given, **more)  # type: ignore[arg-type]

    patch.setattr(Stack, "step", instead)


@pytest.mark.parametrize("first", ["sweep.json", "*/config.yaml", "*/checkpoints/step-*", "*/heads.json"])
def test_a_killed_sweep_is_completed_by_resume(first: str, here: Path, server: ForkServer) -> None:
    sweep = Path("runs/k")
    held = [("tests.commands.test_sweep_command:hold", str(sweep.absolute()), first)]
    process = server.start(["sweep", *GRID, "--seeds", "3", "--name", "k"], here, held)
    while not list(sweep.glob(first)) and not process.ended_with():
        time.sleep(0.002)
    process.signal(signal.SIGKILL)
    assert process.wait().code == -signal.SIGKILL
    done = {p.parent: tree(p.parent) for p in sweep.glob("*/run.json") if facts(p.parent)["status"] == "finished"}
    assert mhsa("sweep", "--resume", "k").code == 0
    assert len(trials(sweep)) == 6
    assert all(tree(path) == before for path, before in done.items())


def test_a_trial_that_explodes_is_told_and_the_others_finish() -> None:
    said = mhsa("sweep", *SMALL, "lr=5e-3,9e3", "n_layers=2", "--seeds", 2, "--json")
    assert said.code == 3
    status = [run["status"] for run in said.json["runs"]]
    assert status[:2] == ["finished"] * 2 and "failed" in status[2:]
    failed = next(run for run in said.json["runs"] if run["status"] == "failed")
    assert "reached" in facts(Path(failed["run"]))["sweep"]
    assert failed["cause"] == "nonfinite" and said.json["failed"] == status.count("failed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["n_heads=1,,2"], "without a value"),
        (["n_heads=1,1"], "twice"),
        (["n_heads=1,2", "--seeds", "0"], "1 or more"),
        (["n_heads=1,2", "--seeds", "9000000"], "at most 100,000"),
        (["n_head=1,2"], "did you mean `n_heads`"),
        (["n_heads=1,3"], "--skip-invalid"),
        (["n_heads=1", "--jobs", "0"], "--jobs: found `0`"),
        (["n_heads=1", "--goal", "99"], "at most 1"),
        (["n_heads=1", "--resume", "x"], "--resume"),
    ],
)
def test_wrong_grids_cost_nothing(arguments: list[str], words: str) -> None:
    said = mhsa("sweep", *SMALL, *arguments)
    assert (said.code, said.out) == (2, "") and words in said.err
    assert not Path("runs").exists()


def test_invalid_settings_are_left_out_where_that_is_asked_for() -> None:
    said = mhsa("sweep", *SMALL, "n_heads=2,3", "--seeds", 1, "--skip-invalid")
    assert said.code == 0 and "model.n_heads=3: " in said.err
    assert mhsa("sweep", "--resume", "nothing").code == 4


def test_a_taken_name_is_answered_with_the_command_that_goes_on() -> None:
    assert mhsa("sweep", *SMALL, "n_heads=2", "--seeds", 1, "--name", "s").code == 0
    said = mhsa("sweep", *SMALL, "n_heads=2", "--name", "s")
    assert said.code == 2 and "the sweep runs/s already exists\n  mhsa sweep --resume runs/s; or" in said.err
    assert mhsa("sweep", "--resume", "runs/s").code == 0


def test_a_resume_names_finished_trials_that_were_damaged() -> None:
    assert mhsa("sweep", *GRID, "--seeds", 2, "--name", "s").code == 0
    assert "damaged" not in mhsa("sweep", "--resume", "s").err
    heads = Path("runs/s/n_heads=2_seed=43/heads.json")
    heads.write_bytes(heads.read_bytes().replace(b"0", b"1", 1))
    weights = next(Path("runs/s/n_heads=1_seed=42/checkpoints").glob("*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    said = mhsa("sweep", "--resume", "s")
    assert said.code == 0 and "n_heads=1_seed=42" in said.err and "mhsa verify s" in said.err


@pytest.mark.parametrize("more", [["--seeds", 9], ["--skip-invalid"], ["--set", "lr=1"], ["lr=1"]])
def test_a_resume_takes_no_other_plan(more: list[object]) -> None:
    said = mhsa("sweep", "--resume", "s", *more)
    assert said.code == 2 and "--resume" in said.err


def test_more_jobs_than_trials_are_as_many_as_there_are_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.jobs.sweep import capacity

    monkeypatch.setattr(capacity, "free_memory", lambda: 3 * 2**30)
    said = mhsa("sweep", *SMALL, "--set", "eval_sequences=9", "--seeds", 1, "--jobs", 60, "--name", "s")
    assert said.code == 0 and "1 trial\n" in said.err


def test_a_sweep_in_which_nothing_stayed_finite_ends_with_3() -> None:
    said = mhsa("sweep", *SMALL, "lr=1e4", "weight_decay=1e4", "--seeds", 2, "--json")
    assert said.code == 3 and said.json["failed"] == 2
    assert [run["cause"] for run in said.json["runs"]] == ["nonfinite"] * 2


def test_names_that_are_no_unicode_change_nothing(tmp_path: Path) -> None:
    text, root = tmp_path / "caf\udce9.txt", tmp_path / "runs\udcff"
    try:
        text.write_text("the cat sat on the mat. " * 9)
    except OSError:
        pytest.skip("this file system wants UTF-8 names")
    small = ["task.name=text", f"task.path={text}", "seq_len=3", "d_model=4", "epochs=0", "eval_sequences=1"]
    said = mhsa("sweep", *small, "n_heads=1", "--seeds", 1, "--name", "s", "--runs", root, "--json")
    assert said.code == 0 and said.json["sweep"] == str(root / "s"), said.err
    rows = list(csv.DictReader((root / "s/sweep.csv").open()))
    assert [row["run"].encode().decode("unicode_escape") for row in rows] == [str(root / "s/seed=42")]
