"""Whichever call fails, and wherever the process dies, an older or the new checkpoint is whole."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.errors import StorageError
from mhsa_cli.runs import checkpoints as room
from mhsa_cli.runs.checkpoints import commit_checkpoint, list_checkpoints, load_checkpoint
from mhsa_cli.runs.commit import sweep_orphans

CALLS = ["open", "mkdir", "write", "fsync", "rename"]
REASONS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS]


def files(step: int, size: int = 50) -> dict[str, bytes]:
    return {"model.safetensors": b"%09d" % step * size, "state.json": b"%d" % step}


def wrapped(call: str, before: Callable[[str], None] = str, after: Callable[[str], None] = str) -> Callable:
    """The real call of `os`, with something that happens just before or after it."""
    real = getattr(os, call)

    def instead(*args, **kwargs):
        before(call)
        result = real(*args, **kwargs)
        after(call)
        return result

    return instead


# What is there before, the step saved now, and how many are kept: a further step, the same one again, one further back.
SITUATIONS = {"first": ([], 3, 1), "further": ([2, 4], 6, 1), "again": ([2, 4], 4, 1), "back": ([2, 4, 6], 4, 2)}


@pytest.fixture(params=SITUATIONS)
def situation(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[int], Path], int, int, bool]:
    """Make fresh run folders in one situation; the folder of the step now saved holds other bytes before."""
    steps, now, keep = SITUATIONS[request.param]

    def make(number: int) -> Path:
        run = tmp_path / f"run-{number}"
        run.mkdir()
        for step in steps:
            commit_checkpoint(run, step, files(step, 7), keep=9)
        return run

    return make, now, keep, bool(steps)


def names(run: Path) -> list[str]:
    folder = run / room.FOLDER
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def check_whole(run: Path, now: int, anything: bool) -> None:
    """The newest that loads is the new one, or one of those before, byte for byte."""
    if not anything and not list_checkpoints(run):
        return
    step, found, _ = load_checkpoint(run)
    assert found in (files(step, 7), files(now))


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("call", CALLS)
def test_a_refused_call_leaves_the_older_valid(situation, call: str, lasting: bool, monkeypatch) -> None:
    make, now, keep, anything = situation
    real = getattr(os, call)
    for number in range(60):
        run = make(number)
        before = names(run)
        seen = 0

        def refuse(*args, number=number, **kwargs):
            nonlocal seen
            seen += 1
            if seen == number + 1 or (lasting and seen > number):
                raise OSError(REASONS[number % len(REASONS)], "refused")
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            try:
                commit_checkpoint(run, now, files(now), keep)
                failed = False
            except StorageError as error:
                failed = True
                assert error.exit_code == 5
                assert errno.errorcode[REASONS[number % len(REASONS)]] in error.message
                assert str(run) in error.message
                assert error.hint is not None
                assert ("still valid" in error.hint) == anything
        check_whole(run, now, anything)
        if not lasting:
            assert not [name for name in names(run) if name.startswith(".tmp-")]
        if not failed and seen <= number:
            assert number > 0
            assert load_checkpoint(run)[:2] == (now, files(now))
            assert len(list_checkpoints(run)) <= keep
            return
        if failed and before:
            assert set(before) <= {name.removesuffix(".replaced") for name in names(run)}
    raise AssertionError("the save never got through")


def test_interrupted_calls_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = dict.fromkeys(CALLS, 2)

    def interrupted(call: str) -> None:
        if left[call]:
            left[call] -= 1
            raise InterruptedError(errno.EINTR, "signal")

    for call in CALLS:
        monkeypatch.setattr(os, call, wrapped(call, before=interrupted))
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:5]))  # and a few bytes at a time
    commit_checkpoint(tmp_path, 5, files(5), 1)
    assert load_checkpoint(tmp_path).files == files(5)
    assert not any(left.values())


def test_ctrl_c_within_a_save_leaves_no_trace(situation, monkeypatch: pytest.MonkeyPatch) -> None:
    make, now, keep, anything = situation
    for number in range(40):
        run, seen = make(number), 0

        def press(_: str, number: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen == number + 1:
                raise KeyboardInterrupt

        for call in ("write", "fsync", "rename"):
            monkeypatch.setattr(os, call, wrapped(call, after=press))
        try:
            commit_checkpoint(run, now, files(now), keep)
        except KeyboardInterrupt:
            monkeypatch.undo()
            sweep_orphans(run / room.FOLDER)
            assert not [name for name in names(run) if name.startswith(".tmp-")]
            check_whole(run, now, anything)
        else:
            monkeypatch.undo()
            assert number > 5
            return
    raise AssertionError("the save never got through")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_death_before_any_call_leaves_a_whole_checkpoint(situation) -> None:
    make, now, keep, anything = situation
    for number in range(80):
        run = make(number)
        pid = os.fork()
        if pid == 0:
            left = number

            def die(_: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            for call in [*CALLS, "rmdir", "unlink"]:
                setattr(os, call, wrapped(call, before=die))
            commit_checkpoint(run, now, files(now), keep)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        check_whole(run, now, anything)
        if anything:
            assert list_checkpoints(run)
        sweep_orphans(run / room.FOLDER)
        assert not [name for name in names(run) if name.startswith(".tmp-")]
        commit_checkpoint(run, now, files(now), keep)
        assert load_checkpoint(run) == (now, files(now), ())
        assert len(names(run)) <= keep
        if status == 0:
            assert number > 8
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("the save never got through")


def test_a_full_disk_ends_in_a_reason(tmp_path: Path, in_child) -> None:
    commit_checkpoint(tmp_path, 1, files(1), 1)

    def save() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            commit_checkpoint(tmp_path, 2, files(2), 1)
        except StorageError as error:
            return f"{error.exit_code} {error}"
        return "saved"

    said = in_child(save, user=None)
    assert said.startswith("5 cannot save ")
    assert "EFBIG" in said
    assert "the older checkpoint of step 1 is still valid" in said
    assert load_checkpoint(tmp_path) == (1, files(1), ())
    assert names(tmp_path) == ["step-00000001"]
