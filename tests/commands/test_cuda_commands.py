"""mhsa on a device: what is trained there can be looked at, gone on with and swept, and the run says where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.shell import facts, mhsa
from tests.devices import on_each_device


@on_each_device
def test_a_run_and_all_that_comes_after_it(device: str) -> None:
    there = f"train.device={device}"
    said = mhsa("train", "--config", "tiny.yaml", "--name", "one", there)
    assert said.code == 0, said.err
    found = facts(Path("runs/one"))
    assert found["device"].startswith(device) and found["status"] == "finished"
    for command in (
        ("inspect-heads", "one", "--ablate", "L0.H1,L1.H0"),
        ("inspect-heads", "one", "--tokens", "3 1 10"),
        ("explain", "one"),
        ("timeline", "one"),
        ("verify", "one"),
        ("generate", "one", "--prompt", "3 1"),
        ("trace", "--config", "tiny.yaml", there),
    ):
        done = mhsa(*command)
        assert done.code == 0, (command, done.err)
    for command in (("inspect-heads", "one", "--tokens", "3 11"), ("generate", "one", "--prompt", "11")):
        done = mhsa(*command)
        assert done.code == 2 and "11" in done.err, command


@on_each_device
def test_stopping_and_going_on_changes_no_bit(device: str) -> None:
    said = mhsa("verify", "--resume-check", "tiny.yaml", f"train.device={device}")
    assert said.code == 0, said.err


@on_each_device
def test_the_trials_of_a_sweep_are_the_single_runs(device: str) -> None:
    there = ("--config", "tiny.yaml", f"train.device={device}")
    done = mhsa("sweep", *there, "n_heads=2,3", "--seeds", "2", "--name", "many")
    assert done.code == 0, done.err
    trials = sorted(path.parent for path in Path("runs/many").glob("*/run.json"))
    assert len(trials) == 4
    for trial in trials:
        found, name = facts(trial), trial.name.replace("=", "-")
        single = mhsa("train", *there, f"n_heads={found['n_heads']}", f"seed={found['seed']}", "--name", name)
        alone = facts(Path("runs", name))
        assert single.code == 0 and alone["device"] == found["device"]
        assert found["final"] == pytest.approx(alone["final"], abs=1e-4)
