"""mhsa train --resume: the same bits and the same metrics as never stopped, or a refusal that says why."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.config.schema import Config
from tests.commands.shell import at_step, facts, metrics, mhsa, tree

TRAIN = ("train", "--config", "tiny.yaml", "--name", "again")
RUN = Path("runs/again")


def kill(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("step", "number", "code"),
    [(1, signal.SIGINT, 130), (4, signal.SIGTERM, 143), (5, signal.SIGHUP, 129), (7, signal.SIGINT, 130)],
)
def test_stopped_by_a_signal_and_resumed_is_as_never_stopped(step: int, number: int, code: int, tiny: Path) -> None:
    with at_step(step, kill(number)):
        said = mhsa(*TRAIN)
    assert said.code == code
    assert f"stopped after step {step} of 10; continue: mhsa train --resume again" in said.err
    assert (facts(RUN)["status"], facts(RUN)["step"]) == ("stopped", step)
    assert (RUN / "checkpoints" / f"step-{step:08d}").is_dir()
    assert mhsa("inspect-heads", "again", "--json").json["step"] == step
    assert mhsa("train", "--resume", "again").code == 0
    assert facts(RUN)["weights_sha256"] == facts(tiny)["weights_sha256"]
    assert (RUN / "metrics.jsonl").read_bytes() == (tiny / "metrics.jsonl").read_bytes()
    assert (facts(RUN)["status"], facts(RUN)["step"], facts(RUN)["final"]) == ("finished", 10, facts(tiny)["final"])
    assert (RUN / "heads.json").read_text().replace("again", "tiny") == (tiny / "heads.json").read_text()


def test_a_signal_in_the_last_step_leaves_a_finished_run() -> None:
    with at_step(10, kill(signal.SIGTERM)):
        said = mhsa(*TRAIN)
    assert said.code == 143 and "stopped after" not in said.err
    assert facts(RUN)["status"] == "finished"


def test_a_second_signal_ends_it_at_once() -> None:
    def twice() -> None:
        kill(signal.SIGTERM)()
        kill(signal.SIGINT)()

    before = signal.getsignal(signal.SIGTERM)
    with at_step(7, twice):
        said = mhsa(*TRAIN)
    assert said.code == 130 and signal.getsignal(signal.SIGTERM) is before
    assert (facts(RUN)["status"], facts(RUN)["step"]) == ("interrupted", 6)
    assert mhsa("train", "--resume", "again").code == 0
    assert [r["step"] for r in metrics(RUN) if r["kind"] == "step"] == list(range(1, 11))


@pytest.mark.parametrize("place", ["", "newest", "again", "runs/again"])
def test_killed_at_once_after_its_last_save_a_run_still_gets_its_results(place: str, tiny: Path) -> None:
    shutil.move(tiny, RUN)
    whole = facts(RUN)
    (RUN / "heads.json").unlink()
    left = {key: whole[key] for key in whole if key not in ("final", "weights_sha256", "chance", "seconds")}
    (RUN / "run.json").write_text(json.dumps({**left, "status": "running"}))
    assert mhsa("runs", "--json").json[0]["status"] == "interrupted"
    assert mhsa("train", "--resume", place or "newest").code == 0
    now = facts(RUN)
    assert (now["status"], now["final"]) == ("finished", whole["final"])
    assert now["weights_sha256"] == whole["weights_sha256"] and (RUN / "heads.json").exists()


@pytest.mark.parametrize(
    ("setting", "same"),
    [("model.dropout=0", True), ("train.schedule=cosine", False), ("model.norm=rmsnorm", False)],
)
def test_a_run_of_an_older_version_goes_on_with_its_own_steps_or_not_at_all(
    setting: str, same: bool, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    """Before train.min_lr a schedule fell to 0 one step later, and fewer gradients were written out."""

    def older(config: Config) -> dict[str, Any]:
        found = to_dict(config)
        del found["train"]["min_lr"]
        return found

    to_dict = Config.to_dict
    with monkeypatch.context() as patch, at_step(7, kill(signal.SIGINT)):
        patch.setattr(Config, "to_dict", older)
        assert mhsa(*TRAIN, setting).code == 130
    said = mhsa("train", "--resume", "again")
    if not same:
        assert said.code == 4 and "--allow-inexact" in said.err and facts(RUN)["step"] == 7
        said = mhsa("train", "--resume", "again", "--allow-inexact")
    assert said.code == 0 and facts(RUN)["status"] == "finished"
    assert mhsa("train", "--resume", "again", "train.epochs=3").code == 0


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_a_run_with_nothing_left_to_do_is_not_touched(status: str, tiny: Path) -> None:
    (tiny / "run.json").write_text(json.dumps({**facts(tiny), "status": status}))
    before = tree(tiny)
    for changes in ([], ["train.epochs=1"], ["train.save_every=3"]):
        said = mhsa("train", "--resume", "tiny", *changes)
        assert (said.code, said.out) == (0, "")
        assert "mhsa train --resume tiny train.epochs=3\n" in said.err  # the offered command has a step to make
        assert " 10 " in said.err and (" 5 " in said.err) == (changes == ["train.epochs=1"])
    document = mhsa("train", "--resume", "tiny", "--json").json
    assert document["weights_sha256"] == facts(tiny)["weights_sha256"] and len(document["epochs"]) == 2
    assert tree(tiny) == before


def test_a_run_may_go_on_longer_and_equals_one_that_was_planned_longer(tiny: Path) -> None:
    assert mhsa("train", "--resume", "tiny", "train.epochs=3").code == 0
    assert mhsa(*TRAIN, "train.epochs=3").code == 0
    assert facts(tiny)["weights_sha256"] == facts(RUN)["weights_sha256"]
    assert (tiny / "metrics.jsonl").read_bytes() == (RUN / "metrics.jsonl").read_bytes()
    assert (tiny / "config.yaml").read_bytes() == (RUN / "config.yaml").read_bytes()
    assert facts(tiny)["total_steps"] == facts(tiny)["step"] == 15
    assert mhsa("inspect-heads", "tiny", "--json").json["step"] == 15


def test_another_end_of_a_falling_schedule_is_told(tiny: Path) -> None:
    assert mhsa(*TRAIN, "train.schedule=linear").code == 0
    said = mhsa("train", "--resume", RUN, "train.epochs=4").err
    assert "note: the linear schedule now ends at step 20, not 10:" in said
    assert "step 10 changes from 0 to 0.00294" in said
    assert "schedule" not in mhsa("train", "--resume", "tiny", "train.epochs=4").err
    assert "schedule" not in mhsa("train", "--resume", RUN, "train.epochs=4", "train.keep=3").err


@pytest.mark.parametrize("change", ["model.n_layers=3", "train.lr=1e-3", "train.seed=4", "task.vocab_size=12"])
def test_a_change_that_makes_another_run_is_refused_by_name(change: str, tiny: Path) -> None:
    before = tree(tiny)
    said = mhsa("train", "--resume", "tiny", "train.epochs=4", change)
    key, _, value = change.partition("=")
    assert said.code == 2 and f"{key}: " in said.err and f"-> {float(value):g}" in said.err
    assert "train.epochs" in said.err.splitlines()[-1]  # which may change
    assert tree(tiny) == before


def test_a_refused_change_is_written_as_in_a_config(tiny: Path) -> None:
    said = mhsa("train", "--resume", "tiny", "model.window=3", "model.bias=false")
    assert said.code == 2 and "model.window: null -> 3" in said.err and "model.bias: true -> false" in said.err


@pytest.mark.parametrize(
    ("key", "old", "new"), [("model.d_mlp", "20", "21"), ("model.n_heads", "3", "4"), ("train.lr", "0.005", "0.006")]
)
def test_a_config_edited_after_training_is_refused_with_the_difference(
    key: str, old: str, new: str, tiny: Path
) -> None:
    config, name = tiny / "config.yaml", key.partition(".")[2]
    config.write_text(config.read_text().replace(f"{name}: {old}\n", f"{name}: {new}\n"))
    before = tree(tiny)
    resume = ["train", "--resume", "tiny"]
    for command in (resume, [*resume, "train.epochs=5"], ["inspect-heads", "tiny", "--tokens", "3 1"]):
        said = mhsa(*command)
        assert said.code == 4 and f"edited after training: {key}: {old} -> {new}" in said.err
    assert tree(tiny) == before


def test_a_config_that_is_damaged_or_gone_is_a_bad_run(tiny: Path) -> None:
    (tiny / "config.yaml").write_text("model: [")
    said = mhsa("train", "--resume", "tiny")
    assert said.code == 4 and "runs/tiny/config.yaml:1:" in said.err
    (tiny / "config.yaml").unlink()
    assert mhsa("train", "--resume", "tiny").code == mhsa("inspect-heads", "tiny", "--tokens", "1").code == 4


@pytest.mark.parametrize("what", ["threads", "device", "torch"])
def test_a_machine_with_other_bits_is_refused_unless_allowed(what: str, tiny: Path) -> None:
    changes = ["train.epochs=3", *(["train.threads=2"] if what == "threads" else [])]
    if what != "threads":
        (tiny / "run.json").write_text(json.dumps({**facts(tiny), what: "another"}))
    before = tree(tiny)
    said = mhsa("train", "--resume", "tiny", *changes)
    assert said.code == 4 and f"{what}: " in said.err and "--allow-inexact" in said.err
    assert {**tree(tiny), ".lock": None} == {**before, ".lock": None}
    assert mhsa("train", "--resume", "tiny", *changes, "--allow-inexact").code == 0
    assert facts(tiny)["step"] == 15 and facts(tiny)["threads"] == (2 if what == "threads" else 1)
    assert mhsa("inspect-heads", "tiny", "--tokens", "3 1").code == 0


def test_a_damaged_checkpoint_is_passed_over_and_that_is_said(tiny: Path) -> None:
    whole, curve = facts(tiny)["weights_sha256"], (tiny / "metrics.jsonl").read_bytes()
    damaged = tiny / "checkpoints" / "step-00000010" / "model.safetensors"
    data = bytearray(damaged.read_bytes())
    data[200] ^= 1
    damaged.write_bytes(data)
    said = mhsa("inspect-heads", "tiny", "--tokens", "3 1", "--json")
    assert said.json["step"] == 5 and "note: damaged checkpoint skipped: step-00000010" in said.err
    said = mhsa("train", "--resume", "tiny", "--json")
    assert said.code == 0 and said.err.count("note: damaged checkpoint skipped: step-00000010") == 1
    assert said.json["weights_sha256"] == whole and (tiny / "metrics.jsonl").read_bytes() == curve
    for folder in (tiny / "checkpoints").iterdir():
        (folder / "state.json").write_bytes(b"")
    said = mhsa("train", "--resume", "tiny")
    assert said.code == 4 and "step-00000005: " in said.err and "step-00000010: " in said.err


def test_one_run_has_one_trainer(tiny: Path) -> None:
    from mhsa_cli.runs.run_dir import RunDir

    with RunDir.open(Path("runs"), "tiny", write=True):
        before = tree(tiny)
        said = mhsa("train", "--resume", "tiny", "train.epochs=3")
        assert said.code == 6 and f"in use by pid {os.getpid()}" in said.err
        assert mhsa("train", "--name", "tiny").code == 6
        assert mhsa("inspect-heads", "tiny").code == mhsa("curve", "tiny").code == 0
        assert tree(tiny) == before
    assert mhsa("train", "--resume", "tiny", "train.epochs=3").code == 0


def test_what_cannot_be_resumed(tiny: Path) -> None:
    for arguments in (["--config", "tiny.yaml"], ["--name", "other"]):
        said = mhsa("train", "--resume", "tiny", *arguments)
        assert said.code == 2 and "--resume" in said.err
    assert mhsa("train", "--resume", "none").code == 4
    assert mhsa("train", "--resume", "newest", "--runs", "nowhere").code == 4
    shutil.rmtree(tiny / "checkpoints")
    assert "no checkpoint" in mhsa("train", "--resume", "newest").err
