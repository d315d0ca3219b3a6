"""task.name: FILE.py:Name and task.rows in commands: trained, resumed and swept like ours, and run only where named."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.core.heads import random_baseline
from mhsa_cli.core.tasks import TASKS
from mhsa_cli.jobs import own_task
from tests.commands.shell import Said, at_step, facts, mhsa

TOUCH = 'Path("ran").touch()'
MINE = f'''\
from pathlib import Path

import torch

{TOUCH}


class First:
    """The last place asks for the first symbol."""

    def __init__(self, vocab_size=7, seq_len=5, shift=0):
        self.vocab_size, self.seq_len, self.shift = vocab_size, seq_len, shift

    def sample(self, generator, rows):
        inputs = torch.randint(self.vocab_size, (rows, self.seq_len), generator=generator)
        targets = torch.full_like(inputs, -100)
        targets[:, -1] = (inputs[:, 0] + self.shift) % self.vocab_size
        return inputs, targets

    def symbols(self, ids):
        return [chr(97 + i) for i in ids]
'''
TASK = "task.name=mine.py:First"
NAMED = ("--task", "mine.py:First")
SMALL = (
    "d_model=8",
    "n_heads=2",
    "positions=learned",
    "epochs=1",
    "steps_per_epoch=24",
    "eval_sequences=40",
    "lr=0.02",
)
RUN = Path("runs/own")


@pytest.fixture(scope="module", autouse=True)
def few_untrained_heads() -> Iterator[None]:
    """Labels are not asked here, and those of a file's task are measured anew after every training."""
    with mock.patch.object(random_baseline, "HEADS", 8), mock.patch.object(random_baseline, "RANDOM_HEADS", 8):
        yield


@pytest.fixture(autouse=True)
def mine(here: Path) -> None:
    (here / "mine.py").write_text(MINE)


def train(*more: str) -> Said:
    return mhsa("train", TASK, *SMALL, "--name", "own", *more)


def ran() -> bool:
    """Whether the file has run since this was asked last."""
    there = Path("ran").exists()
    Path("ran").unlink(missing_ok=True)
    return there


def test_it_is_trained_and_its_file_is_in_the_run() -> None:
    said = train("task.shift=2")
    assert said.code == 0 and ran()
    found = facts(RUN)
    assert found["own_task"] | {"sha256": ""} == {"file": "mine.py", "name": "First", "sha256": ""}
    assert "shift: 2" in (RUN / "config.yaml").read_text() and found["task"] == "First"
    assert mhsa("train", TASK, *SMALL).code == 0 and Path("runs/first-h2").is_dir()


def test_what_is_stored_needs_no_file_and_what_is_measured_asks_for_it() -> None:
    train()
    for command in ("explain", "inspect-heads", "timeline", "curve", "verify", "runs"):
        ran()
        assert mhsa(command, *(["own"] if command != "runs" else [])).code == 0, command
        assert not ran(), command
    asking: list[tuple[str, ...]] = [
        ("inspect-heads", "own", "--ablate", "L0.H0"),
        ("inspect-heads", "own", "--patch", "L0.H0:logits"),
        ("inspect-heads", "own", "--circuits"),
        ("inspect-heads", "own", "--tokens", "a b c"),
        ("generate", "own", "--prompt", "a b c d e"),
        ("explain", "own", "--more"),
    ]
    for command in asking:
        refused = mhsa(*command)
        assert refused.code == 2 and "--task mine.py:First" in refused.err and not ran(), command
        assert mhsa(*command, *NAMED).code == 0 and ran(), command


def test_another_task_or_a_changed_file_is_told() -> None:
    train()
    wrong = mhsa("inspect-heads", "own", "--ablate", "L0.H0", "--task", "mine.py:Other")
    assert wrong.code == 2 and "mine.py:Other" in wrong.err
    Path("mine.py").write_text(MINE + "\n# other\n")
    changed = mhsa("inspect-heads", "own", "--ablate", "L0.H0", *NAMED)
    assert changed.code == 0 and "is not the file own was trained on" in changed.err
    built_in = mhsa("train", "task.name=copy", "task.vocab_size=5", "task.seq_len=4", *SMALL, "--name", "copy")
    assert built_in.code == 0
    assert mhsa("generate", "copy", "--prompt", "1", *NAMED).code == 2


def test_a_resumed_run_is_the_unbroken_one_and_needs_the_same_file() -> None:
    train()
    shutil.copytree(RUN, "runs/whole")
    shutil.rmtree(RUN)
    with at_step(9, lambda: os.kill(os.getpid(), signal.SIGINT)):
        stopped = train("train.save_every=6")
    assert "continue: mhsa train --resume own --task mine.py:First" in stopped.err
    Path("mine.py").write_text(MINE + "\n# other\n")
    assert mhsa("train", "--resume", "own", *NAMED).code == 4
    Path("mine.py").write_text(MINE)
    assert mhsa("train", "--resume", "own").code == 2
    assert mhsa("train", "--resume", "own", *NAMED).code == 0
    assert facts(RUN)["weights_sha256"] == facts(Path("runs/whole"))["weights_sha256"]


def test_a_sweep_varies_its_settings_and_is_resumed() -> None:
    said = mhsa("sweep", TASK, *SMALL, "task.shift=0,3", "--seeds", "2", "--name", "s", "--json")
    assert said.code == 0
    report = json.loads(said.out)
    assert [group["overrides"] for group in report["groups"]] == [{"task.shift": "0"}, {"task.shift": "3"}]
    trial = next(Path("runs/s").glob("*/run.json")).parent
    assert facts(trial)["own_task"]["name"] == "First"
    shutil.rmtree(trial)
    assert mhsa("sweep", "--resume", "s").code == 2
    again = mhsa("sweep", "--resume", "s", *NAMED, "--json")
    assert json.loads(again.out)["groups"] == report["groups"]
    shutil.rmtree(trial)
    Path("mine.py").write_text(MINE + "\n# other\n")
    assert mhsa("sweep", "--resume", "s", *NAMED).code == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return inputs, targets", "return inputs"),
        ("generator=generator", "generator=None"),
        ("(rows, self.seq_len)", "(rows, 3)"),
        ("% self.vocab_size\n", "+ 9\n"),
        ("inputs = torch", "raise KeyError(3)\n        inputs = torch"),
        ("import torch\n", "import torch, no_such_package\n"),
    ],
)
def test_a_wrong_task_is_refused_before_anything_is_written(old: str, new: str) -> None:
    assert old in MINE
    Path("mine.py").write_text(MINE.replace(old, new))
    said = train()
    assert said.code == 2 and not Path("runs").exists()


def test_a_new_file_runs_and_is_drawn() -> None:
    assert mhsa("tasks", "new", "given.py").code == 0
    assert mhsa("tasks", "new", "given.py").code == 2  # nothing is overwritten
    assert mhsa("tasks", "new", "given.txt").code == 2 and mhsa("tasks", "new").code == 2
    drawn = json.loads(mhsa("tasks", "given.py:MyTask", "--json").out)
    assert drawn["targets"][:-1] == ["·"] * 7 and drawn["targets"][-1] == max(drawn["inputs"], key=int)
    assert mhsa("train", "task.name=given.py:MyTask", *SMALL).code == 0


def test_rows_of_a_file_are_trained_from_the_runs_copy() -> None:
    Path("sums.txt").write_text("".join(f"{a} + {b} -> {a + b}\n" for a in range(5) for b in range(5)))
    assert mhsa("train", "task.rows=sums.txt", *SMALL, "--name", "own").code == 0
    Path("sums.txt").unlink()
    assert mhsa("inspect-heads", "own", "--ablate", "L0.H0").code == 0
    assert mhsa("verify", "own").code == 0
    (RUN / "text.txt").write_text("1 -> 2\n3 -> 4\n")
    assert mhsa("inspect-heads", "own", "--ablate", "L0.H0").code == 4


def test_no_built_in_task_is_called_new() -> None:
    assert not {"new", "show", "rm"} & TASKS.keys()


def test_a_task_of_several_settings_is_checked_once() -> None:
    with mock.patch.object(own_task, "check_overlap", wraps=own_task.check_overlap) as checked:
        assert mhsa("sweep", TASK, *SMALL[:1], *SMALL[2:], "n_heads=1,2,4", "--seeds", "1", "--dry-run").code == 0
        assert checked.call_count == 1
        assert mhsa("sweep", TASK, *SMALL, "task.shift=0,2", "--seeds", "1", "--dry-run").code == 0
    assert checked.call_count == 3
