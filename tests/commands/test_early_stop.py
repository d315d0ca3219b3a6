"""Runs that end by train.stop_at or train.patience: what the folder says, and how they go on; trials of a sweep."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.commands.shell import at_step, digests, facts, metrics, mhsa

QUICK = ("task.name=repeat", "vocab_size=11", "seq_len=5", "d_model=20", "n_heads=2", "batch_size=5", "lr=0.02")
TRAIN = (
    "train",
    *QUICK,
    "epochs=4",
    "steps_per_epoch=10",
    "eval_every=3",
    "eval_sequences=40",
    "log_every=4",
    "--name",
)
GOAL = "stop_at=loss=1.2"
RUNS = Path("runs")


def test_a_run_that_ended_early_is_finished_whole_and_says_why() -> None:
    said = mhsa(*TRAIN, "a", GOAL)
    assert said.code == 0
    assert mhsa("train", "--resume", "a", "--json").json["ended_by"] == "stop_at"
    info = facts(RUNS / "a")
    assert (info["status"], info["ended_by"], info["total_steps"]) == ("finished", "stop_at", 40)
    assert info["step"] == info["final"]["step"] < 40 and info["final"]["eval_loss"] <= 1.2
    assert "train.stop_at" in said.out and str(info["step"]) in said.out
    shown = [one for one in metrics(RUNS / "a") if one["kind"] == "eval"]
    assert shown[-1]["step"] == info["step"] and all(one["loss"] > 1.2 for one in shown[:-1])
    assert mhsa("verify", "a").code == 0
    for command in ("curve", "explain", "timeline", "inspect-heads", "evaluate", "runs"):
        assert mhsa(command, "a").code == 0, command
    assert mhsa("runs", "a", "--json").json["ended_by"] == "stop_at"
    assert mhsa(*TRAIN, "b").code == 0 and facts(RUNS / "b")["ended_by"] is None


def test_it_is_complete_until_its_setting_is_changed() -> None:
    assert mhsa(*TRAIN, "a", GOAL).code == 0
    before = (RUNS / "a" / "run.json").read_bytes()
    for changes in ([], ["epochs=9"], ["save_every=2"]):
        said = mhsa("train", "--resume", "a", *changes)
        assert said.code == 0 and "mhsa train --resume a train.stop_at=null\n" in said.err
    assert (RUNS / "a" / "run.json").read_bytes() == before
    assert mhsa("train", "--resume", "a", "stop_at=null").code == 0
    assert mhsa(*TRAIN, "whole").code == 0
    one, other = facts(RUNS / "a"), facts(RUNS / "whole")
    assert (one["weights_sha256"], one["step"], one["ended_by"]) == (other["weights_sha256"], 40, None)
    kinds = [[r for r in metrics(RUNS / name) if r["kind"] != "step"] for name in ("a", "whole")]
    assert kinds[0] == kinds[1]
    assert mhsa("verify", "a").code == 0


def test_more_patience_goes_on_as_if_it_had_been_planned() -> None:
    """What a run has waited for so far is in its checkpoint."""
    noisy = ("lr=0.3", "eval_every=2", "task.name=copy", "seq_len=6")
    train = tuple(one for one in TRAIN if not one.startswith(("lr=", "eval_every", "task.name", "seq_len")))
    for patience in (1, 4):
        assert mhsa(*train[:-1], *noisy, f"patience={patience}", "--name", f"p{patience}").code == 0
    first, second = facts(RUNS / "p1"), facts(RUNS / "p4")
    assert first["ended_by"] == "patience" and first["step"] < second["step"]
    assert mhsa("train", "--resume", "p1", "patience=4").code == 0
    after = facts(RUNS / "p1")
    assert [after[key] for key in ("step", "ended_by", "weights_sha256")] == [
        second[key] for key in ("step", "ended_by", "weights_sha256")
    ]


@pytest.mark.parametrize("step", [2, 9])
def test_stopped_by_a_signal_and_resumed_it_ends_at_the_same_step(step: int) -> None:
    assert mhsa(*TRAIN, "a", GOAL).code == 0
    with at_step(step, lambda: signal.raise_signal(signal.SIGTERM)):
        assert mhsa(*TRAIN, "b", GOAL).code == 143
    assert facts(RUNS / "b")["status"] == "stopped" and facts(RUNS / "b")["ended_by"] is None
    assert mhsa("train", "--resume", "b").code == 0
    for key in ("status", "step", "ended_by", "weights_sha256", "final"):
        assert facts(RUNS / "b")[key] == facts(RUNS / "a")[key]
    assert (RUNS / "a" / "metrics.jsonl").read_bytes() == (RUNS / "b" / "metrics.jsonl").read_bytes()


def test_the_check_of_a_resume_holds() -> None:
    Path("early.yaml").write_text("train: {epochs: 2, steps_per_epoch: 8, eval_every: 2, stop_at: accuracy=0.01}\n")
    assert mhsa("verify", "--resume-check", "early.yaml", "--json").json["equal"] is True


def test_trials_end_each_at_its_own_step_as_runs_of_their_own() -> None:
    goal = ("sweep", *TRAIN[1:-1], "stop_at=loss=1.0,loss=1.6", "--seeds", "3", "--name", "s")
    assert mhsa(*goal).code == 0
    infos = {path.parent.name: facts(path.parent) for path in sorted((RUNS / "s").glob("*/run.json"))}
    early = {name: info for name, info in infos.items() if info["ended_by"]}
    assert len(infos) == 6 and all(info["status"] == "finished" for info in infos.values())
    assert len({info["step"] for info in early.values()}) > 1
    for name, info in infos.items():
        assert mhsa("train", "--config", RUNS / "s" / name / "config.yaml", "--name", name.replace("=", "_")).code == 0
        alone = facts(RUNS / name.replace("=", "_"))
        for key in ("weights_sha256", "step", "ended_by", "final"):
            assert alone[key] == info[key], name
    assert mhsa("verify", "s").code == 0
    shown = mhsa("sweep", "show", "s", "--json").json
    assert [row["status"] for row in shown["runs"]] == ["finished"] * 6
    assert mhsa("sweep", "--resume", "s").code == 0


def test_a_sweep_that_is_stopped_keeps_the_trials_that_ended_and_goes_on_with_the_others() -> None:
    sweep = ("sweep", *TRAIN[1:-1], "stop_at=loss=1.2", "--seeds", "3", "--name")
    assert mhsa(*sweep, "whole").code == 0
    steps = sorted(facts(path.parent)["step"] for path in (RUNS / "whole").glob("*/run.json"))
    assert steps[0] < steps[-1]
    with at_step(steps[0] + 1, lambda: signal.raise_signal(signal.SIGTERM)):
        assert mhsa(*sweep, "s").code == 143
    assert sorted(facts(path.parent)["status"] for path in (RUNS / "s").glob("*/run.json"))[0] == "finished"
    assert mhsa("sweep", "--resume", "s").code == 0
    assert digests(RUNS / "s") == digests(RUNS / "whole")
