"""A run has one owner, decided between real processes; a dead owner holds no lock."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from mhsa_cli.errors import BusyError, StorageError
from mhsa_cli.runs.disk import refused_with
from mhsa_cli.runs.listing import list_runs
from mhsa_cli.runs.lock import is_locked
from mhsa_cli.runs.run_dir import RunDir
from tests.refusals import fact, refusal

RACER = """
from pathlib import Path
from mhsa_cli.errors import MhsaError
from mhsa_cli.runs.run_dir import RunDir
what, root = sys.argv[1], Path(sys.argv[2])
sys.stdout.write("ready\\n"); sys.stdout.flush()
sys.stdin.readline()
try:
    if what == "named":
        run = RunDir.create(root, "same")
    elif what == "unnamed":
        run = RunDir.create(root, stem="repeat-h4")
    else:
        run = RunDir.open(root, "same", write=True)
    print("own", run.name, flush=True)
except MhsaError as error:
    print(error.exit_code, error.message, flush=True)
sys.stdin.readline()
"""


def race(start, what: str, root: Path, count: int = 8) -> list[str]:
    """Start processes, let them go at once, and return what each said while all are still alive."""
    processes = [start(RACER, what, root) for _ in range(count)]
    for process in processes:
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    said = [f"{process.pid} {process.stdout.readline().decode().strip()}" for process in processes]
    for process in processes:
        process.communicate(b"\n")
    return said


def test_of_eight_with_one_name_one_owns_it(start, tmp_path: Path) -> None:
    root = tmp_path / "runs"  # they also race to create it
    said = race(start, "named", root)
    owners = [line.split()[0] for line in said if line.endswith(" own same")]
    assert len(owners) == 1
    losers = [line for line in said if not line.endswith(" own same")]
    assert all(f" 6 {root}/same is in use by pid {owners[0]} (since " in line for line in losers), losers
    assert {entry.name for entry in root.iterdir()} == {"same", ".gitattributes"}


SLOW = """
import time
from pathlib import Path
from mhsa_cli.runs.lock import RunLock
from mhsa_cli.runs.run_dir import RunDir
acquire = RunLock.acquire
def slowly(self):
    print("between", flush=True)
    time.sleep(0.3)
    acquire(self)
RunLock.acquire = slowly
run = RunDir.create(Path(sys.argv[1]), "same")
sys.stdin.readline()
"""


def test_a_loser_meets_the_owner_even_before_its_lock_is_taken(start, tmp_path: Path) -> None:
    owner = start(SLOW, tmp_path)
    assert owner.stdout.readline() == b"between\n"
    with pytest.raises(BusyError, match=rf"pid {owner.pid}\b"):
        RunDir.create(tmp_path, "same")


def test_eight_without_a_name_get_eight(start, tmp_path: Path) -> None:
    said = race(start, "unnamed", tmp_path)
    expected = {"repeat-h4", *(f"repeat-h4-{number}" for number in range(2, 9))}
    assert {line.split()[-1] for line in said} == expected
    orders = [item.order for item in list_runs(tmp_path)]
    assert len(set(orders)) == 8
    assert orders == sorted(orders, reverse=True)


def test_of_eight_that_resume_one_owns_it(start, tmp_path: Path) -> None:
    RunDir.create(tmp_path, "same").close()
    said = race(start, "resume", tmp_path)
    assert sorted(line.split()[1] for line in said) == ["6"] * 7 + ["own"]


def test_a_killed_owner_is_followed_silently(start, tmp_path: Path) -> None:
    owner = start(RACER, "named", tmp_path)
    owner.stdout.readline()
    owner.stdin.write(b"go\n")
    owner.stdin.flush()
    owner.stdout.readline()
    lock = tmp_path / "same" / ".lock"
    assert json.loads(lock.read_text())["pid"] == owner.pid
    assert RunDir.open(tmp_path, "same").read_run_json()["status"] == "running"
    with pytest.raises(BusyError, match=rf"pid {owner.pid}\b") as caught:
        RunDir.open(tmp_path, "same", write=True)
    assert caught.value.exit_code == 6
    owner.send_signal(signal.SIGSTOP)  # stopped is not dead
    with pytest.raises(BusyError):
        RunDir.create(tmp_path, "same")
    owner.kill()
    owner.wait()
    assert RunDir.open(tmp_path, "same").read_run_json()["status"] == "interrupted"
    assert list_runs(tmp_path)[0].status == "interrupted"
    with RunDir.open(tmp_path, "same", write=True):
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert not is_locked(lock)


WRONG_LOCKS = ["", "{", "[]", "\0" * 9, "[" * 4000]
WRONG_LOCKS += [f'{{"pid": {pid}, "host": 1, "started": null}}' for pid in ('"x"', "1e400", "[]")]


@pytest.mark.parametrize("text", WRONG_LOCKS)
def test_the_text_of_a_lock_only_serves_messages(tmp_path: Path, text: str) -> None:
    with RunDir.create(tmp_path, "same") as run:
        (run.path / ".lock").write_text(text)
        assert fact(lambda: RunDir.open(tmp_path, "same", write=True)) == ("busy", "same")
    RunDir.open(tmp_path, "same", write=True).close()


def test_readers_take_no_lock(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, "same") as run:
        run.commit_checkpoint(3, {"a": b"x"})
        reader = RunDir.open(tmp_path, "same")
        assert reader.load_checkpoint() == (3, {"a": b"x"}, ())
        with pytest.raises(RuntimeError, match="reading only"):
            reader.commit_checkpoint(4, {"a": b"x"})
        run.commit_checkpoint(5, {"a": b"x"})


def test_an_existing_run_is_never_overwritten(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, "mine") as run:
        run.write_config("a: 1\n")
    for kind in ("run", "empty folder", "file"):
        if kind == "empty folder":
            (tmp_path / "mine-2").mkdir()
        elif kind == "file":
            (tmp_path / "mine-3").write_text("notes")
    for name in ("mine", "mine-2", "mine-3"):
        error = refusal(lambda: RunDir.create(tmp_path, name))  # noqa: B023
        assert (error.code, error.path) == ("taken", tmp_path / name) and "--name" in str(error.hint)
        assert (f"mhsa train --resume {tmp_path / name}" in str(error.hint)) == (name == "mine")
    assert run.read_config_text() == "a: 1\n"
    assert (tmp_path / "mine-3").read_text() == "notes"
    with RunDir.create(tmp_path, stem="mine") as other:
        assert other.name == "mine-4"


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_folder_taken_away_during_the_run_is_a_storage_error(tmp_path: Path, how: str) -> None:
    with RunDir.create(tmp_path, "gone") as run:
        run.append("metrics.jsonl", [{"kind": "step", "step": 1}])
        if how == "deleted":
            shutil.rmtree(run.path)
        else:
            run.path.rename(tmp_path / "elsewhere")
        if how == "replaced":
            RunDir.create(tmp_path, "gone").close()
        for save in (
            lambda: run.commit_checkpoint(1, {"a": b"x"}),
            lambda: run.append("metrics.jsonl", [{"kind": "step", "step": 2}]),
            lambda: run.update(status="finished"),
            lambda: run.write_heads({}),
            lambda: run.write_config(""),
        ):
            assert fact(save) == ("deleted", "gone")
    if how == "replaced":
        assert not RunDir.open(tmp_path, "gone").checkpoints()
    else:
        assert not (tmp_path / "gone").exists()


def test_a_lock_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    RunDir.create(tmp_path, "same").close()
    lock = tmp_path / "same" / ".lock"
    lock.unlink()
    os.mkfifo(lock)
    assert fact(lambda: RunDir.open(tmp_path, "same", write=True)) == ("no-file", ".lock")
    lock.unlink()
    lock.symlink_to(tmp_path / "outside")
    assert fact(lambda: RunDir.open(tmp_path, "same", write=True)) == ("no-file", ".lock")
    assert not (tmp_path / "outside").exists()


def test_a_failed_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    assert refused_with(refusal(lambda: RunDir.create(tmp_path, "early"))) == 28
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="other permissions there")
def test_an_ordinary_user_meets_reasons(open_place: Path, in_child) -> None:
    readable, closed = open_place / "readable", open_place / "closed"
    with RunDir.create(readable, "mine") as run:
        run.commit_checkpoint(1, {"a": b"x"})
    closed.mkdir()
    for path in (readable, run.path, run.path / "checkpoints"):
        path.chmod(0o555)  # may be looked at and entered
    (run.path / ".lock").chmod(0o444)
    closed.chmod(0o444)  # has no execute bit: not even the names in it can be reached

    def attempts() -> str:
        said = []
        for attempt in (
            lambda: RunDir.create(readable, "another"),
            lambda: RunDir.create(open_place / "readable" / "deeper", "x"),
            lambda: RunDir.create(closed, "x"),
            lambda: RunDir.open(readable, "mine", write=True),
            lambda: RunDir.open(closed, "x"),
        ):
            try:
                attempt()
                said.append("nothing")
            except StorageError as error:
                said.append(f"{error.exit_code} {'EACCES' in error.message} {'--runs' in str(error.hint)}")
        said.append(str(RunDir.open(readable, "newest").load_checkpoint().files))
        return "\n".join(said)

    assert in_child(attempts).split("\n") == ["5 True True"] * 5 + ["{'a': b'x'}"]
