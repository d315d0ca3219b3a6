"""What the system refuses is no damage and no fault of ours: exit code 5, and nothing is lost by it."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.core import make_sure_of_memory
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.jobs import messages
from mhsa_cli.jobs.sweep import chunk
from tests.commands.shell import at_step, facts, mhsa, tree

SIZES = ["task.name=shift", "vocab_size=11", "seq_len=6", "d_model=12", "batch_size=7", "eval_sequences=9", "epochs=2"]
SIZES += ["steps_per_epoch=6"]


def fail(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@contextlib.contextmanager
def refused(path: Path, code: int = errno.EACCES) -> Iterator[None]:
    """Let a file, or all of a folder, not be opened or listed: root may do both."""
    place = str(path.resolve())

    def unless(real: Callable[..., Any]) -> Callable[..., Any]:
        def instead(name: Any, *given: Any, **more: Any) -> Any:
            if f"{Path(os.fsdecode(name)).resolve()}/".startswith(f"{place}/"):
                raise OSError(code, os.strerror(code), os.fspath(name))
            return real(name, *given, **more)

        return instead

    with mock.patch.object(os, "open", unless(os.open)), mock.patch.object(os, "listdir", unless(os.listdir)):
        yield


def test_a_run_that_cannot_be_read_is_not_damaged(tiny: Path) -> None:
    with refused(tiny / "run.json"):
        (row,) = mhsa("runs", "--json").json
        assert (row["problem"], mhsa("runs", "tiny", "--json").json["problem"]) == ("unreadable", "unreadable")
        assert [mhsa(command).code for command in ("explain", "verify", "curve", "compare")] == [5, 5, 5, 2]
    content = json.loads((tiny / "run.json").read_text())
    (tiny / "run.json").write_text(json.dumps({**content, "format": 99}))
    assert mhsa("runs", "--json").json[0]["problem"] == "newer"
    assert [mhsa(command, "tiny").code for command in ("explain", "verify", "curve")] == [4, 4, 4]
    (tiny / "run.json").write_text("{")
    assert mhsa("runs", "--json").json[0]["problem"] == "damaged"


@pytest.mark.parametrize("part", ["config.yaml", "metrics.jsonl", "heads.json", "checkpoints/step-00000010"])
def test_a_verification_tells_what_it_could_not_read_from_damage(part: str, tiny: Path) -> None:
    with refused(tiny / part):
        said = mhsa("verify", "tiny", "--json")
    states = {check["name"]: check["state"] for check in said.json["checks"]}
    assert said.code == 5 and said.json["ok"] is False and states.pop(part) == "unreadable"
    assert "wrong" not in states.values() and "unreadable" not in states.values()
    assert mhsa("verify", "tiny").code == 0


@pytest.mark.parametrize(("code", "exit_code"), [(errno.EACCES, 5), (errno.EIO, 0)])
def test_only_a_disk_that_fails_makes_an_older_checkpoint_do(code: int, exit_code: int, tiny: Path) -> None:
    assert mhsa("train", "--resume", "tiny", "epochs=3", "save_every=1").code == 0
    newest = tiny / "checkpoints/step-00000015"
    before = tree(tiny)
    with refused(newest, code):
        assert mhsa("generate", "tiny", "--prompt", "1 2").code == exit_code
        assert mhsa("train", "--resume", "tiny", "epochs=4").code == exit_code
    assert (exit_code == 5) <= (tree(tiny) == before)


def test_a_sweep_never_trains_over_a_trial_that_it_cannot_read() -> None:
    assert mhsa("sweep", *SIZES, "--seeds", 2, "--name", "s").code == 0
    trial = Path("runs/s/seed=43")
    content = facts(trial)
    for status, part in (
        ("finished", "run.json"),
        ("stopped", "metrics.jsonl"),
        ("stopped", "checkpoints"),
        ("stopped", "checkpoints/step-00000012"),
    ):
        (trial / "run.json").write_text(json.dumps({**content, "status": status}))
        before = tree(trial)
        with refused(trial / part):
            assert mhsa("sweep", "--resume", "s").code == 5
        assert {name: data for name, (data, _) in tree(trial).items()} == {
            name: data for name, (data, _) in before.items()
        }
    (trial / "run.json").write_text(json.dumps({**content, "format": 99}))
    before = tree(trial)
    assert mhsa("sweep", "--resume", "s").code == 4 and tree(trial) == before


@pytest.mark.parametrize("command", ["train", "sweep"])
@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(errno.ENOSPC, 5), (errno.EMFILE, 5), (errno.ENOMEM, 5), (errno.EBADF, 1)],
)
def test_what_the_system_refuses_in_a_step_is_no_fault_of_ours(command: str, code: int, exit_code: int) -> None:
    more = ["--seeds", 1] if command == "sweep" else []
    with at_step(3, fail(OSError(code, os.strerror(code), "some/file"))):
        said = mhsa(command, *SIZES, *more, "--name", "r")
    assert said.code == exit_code and ("internal error" in said.err) == (exit_code == 1)
    assert mhsa(command, "--resume", "r").code == 0


def test_a_chunk_that_breaks_off_before_its_first_step_says_why() -> None:
    with mock.patch.object(Group, "__init__", side_effect=ValueError("a bug")):
        assert mhsa("sweep", *SIZES, "--seeds", 2, "--name", "s").code == 1
    for seed in (42, 43):
        info = facts(Path(f"runs/s/seed={seed}"))
        assert (info["status"], info["step"]) == ("interrupted", 0) and "a bug" in info["sweep"]["message"]
    assert mhsa("verify", "s").code == 0 and mhsa("sweep", "--resume", "s").code == 0
    kept = {"cell", "seed", "reached", "labels", "label_ids", "formed", "curve"}  # and no message any more
    assert facts(Path("runs/s/seed=42"))["sweep"].keys() == kept


def test_what_goes_wrong_before_a_training_begins_is_noted_and_loses_nothing(tiny: Path) -> None:
    whole = facts(tiny)
    for where in ("mhsa_cli.jobs.train.keep_text", "mhsa_cli.core.training.lockstep.Group.__init__"):
        with mock.patch(where, side_effect=OSError(errno.ENFILE, "no")):
            assert mhsa("train", *SIZES, "--name", where).code == 5
        assert (facts(Path("runs", where))["status"], facts(Path("runs", where))["step"]) == ("failed", 0)
    for where in ("mhsa_cli.jobs.resume._note_schedule", "mhsa_cli.core.training.lockstep.Group.__init__"):
        with mock.patch(where, side_effect=MemoryError):
            assert mhsa("train", "--resume", "tiny", "epochs=3").code == 5
        now = facts(tiny)
        assert (now["status"], now["step"], now["final"]) == ("failed", 10, whole["final"])
        assert mhsa("verify", "tiny").code == mhsa("explain", "tiny").code == 0
    assert mhsa("train", "--resume", "tiny", "epochs=3").code == 0


def test_trials_stand_in_the_order_of_their_plan_whatever_the_clock_says() -> None:
    now = iter(range(10**6, 0, -1))
    with mock.patch("time.time_ns", lambda: next(now)), mock.patch("time.time", lambda: float(next(now))):
        assert mhsa("sweep", *SIZES, "n_heads=2,1", "--seeds", 2, "--name", "s").code == 0
    rows = [Path(row["run"]).name for row in mhsa("runs", "--runs", "runs/s", "--json").json]
    assert rows == [f"n_heads={heads}_seed={seed}" for heads in (1, 2) for seed in (43, 42)]


def test_a_trial_that_is_given_up_keeps_the_steps_that_it_has() -> None:
    assert mhsa("sweep", *SIZES, "--seeds", 1, "--name", "usual").code == 0
    real, made = Stack.step, list[int]()

    def stepping(self: Stack, *given: Any, **more: Any) -> None:
        if self.updates == 7 and not enough:
            raise MemoryError
        real(self, *given, **more)
        made.append(self.updates)

    enough: list[bool] = []
    with (
        mock.patch.object(chunk._Clock, "is_due", lambda self, step: step == 5),
        mock.patch.object(Stack, "step", stepping),
    ):
        assert mhsa("sweep", *SIZES, "--seeds", 1, "--name", "s").code == 5
        trial = Path("runs/s/seed=42")
        assert (facts(trial)["status"], facts(trial)["step"], made) == ("failed", 5, [1, 2, 3, 4, 5, 6, 7, 6, 7])
        enough.append(True)
        assert mhsa("sweep", "--resume", "s").code == 0 and made[9:] == [6, 7, 8, 9, 10, 11, 12]
    assert facts(trial)["weights_sha256"] == facts(Path("runs/usual/seed=42"))["weights_sha256"]


@pytest.mark.parametrize(
    ("error", "short", "exit_code"),
    [
        (MemoryError(), False, 5),
        (OSError(errno.ENOMEM, "no"), False, 5),
        (OSError(errno.ENFILE, "no"), False, 5),
        (OSError("no number"), False, 1),
        (OSError(errno.EINVAL, "no"), False, 1),
        (ImportError("half of a library"), False, 1),
        (ImportError("half of a library"), True, 5),
        (SystemError("error return without exception set"), True, 5),
    ],
)
def test_the_last_handler_tells_a_refusal_from_a_fault(error: Exception, short: bool, exit_code: int) -> None:
    with (
        mock.patch("mhsa_cli.commands.runs.runs_root", side_effect=error),
        mock.patch.object(messages, "_is_short", lambda: short),
    ):
        said = mhsa("runs")
    assert said.code == exit_code and ("please report" in said.err) == (exit_code == 1)


def test_memory_that_is_short_is_seen_by_asking_for_some() -> None:
    assert not messages._is_short()
    with mock.patch.object(mmap, "mmap", side_effect=OSError(errno.ENOMEM, "no")):
        assert messages._is_short()


@pytest.mark.parametrize("room", [0, 200_000_000, 1 << 40])
def test_a_library_is_not_loaded_where_it_would_abort_or_hang(room: int) -> None:
    def take(_: int, size: int, *__: int) -> mock.Mock:
        if size > room:
            raise OSError(errno.ENOMEM, "no")
        return mock.Mock()

    modules = {name: module for name, module in sys.modules.items() if name not in ("torch", "scipy")}
    with mock.patch.object(mmap, "mmap", take), mock.patch.dict(sys.modules, modules, clear=True):
        for library, least in (("torch", 1 << 30), ("scipy", 150_000_000)):
            with contextlib.nullcontext() if room > least else pytest.raises(MemoryError):
                make_sure_of_memory(library)
