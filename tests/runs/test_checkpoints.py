"""Checkpoints of a run: rotated by step, verified when read, and skipped when damaged."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from mhsa_cli.errors import NewerFormatError
from mhsa_cli.runs import checkpoints as room
from mhsa_cli.runs import commit
from mhsa_cli.runs.run_dir import RunDir
from tests.commands.shell import tree
from tests.refusals import fact, refusal


@pytest.fixture
def run(tmp_path: Path):
    with RunDir.create(tmp_path / "runs", "mine") as run:
        yield run


def steps(run: RunDir) -> list[int]:
    return [step for step, _ in run.checkpoints()]


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_checkpoints_rotate_by_step(run: RunDir, keep: int) -> None:
    saved = [9, 10, 100, 1000, 123456789]
    for step in saved:
        run.commit_checkpoint(step, {"a": b"%d" % step}, keep)
    assert steps(run) == saved[-keep:]
    os.utime(run.checkpoints()[0].path)
    assert run.load_checkpoint() == (123456789, {"a": b"123456789"}, ())
    assert (run.path / "checkpoints" / "step-00001000").exists() == (keep > 1)


def test_a_damaged_checkpoint_does_not_count_in_rotation(run: RunDir) -> None:
    for step in (1, 2, 3):
        run.commit_checkpoint(step, {"a": b"%d" % step}, 9)
    (run.checkpoints()[-1].path / "a").write_bytes(b"")
    run.commit_checkpoint(4, {"a": b"4"}, 2)
    assert steps(run) == [2, 3, 4]
    (run.checkpoints()[-1].path / "a").unlink()
    step, files, notes = run.load_checkpoint()
    assert (step, files) == (2, {"a": b"2"})
    assert len(notes) == 2
    assert "step-00000004" in notes[0] and "a is missing" in notes[0]
    assert "step-00000003" in notes[1] and "truncated: 0 of 1 bytes" in notes[1]


def test_a_checkpoint_of_a_newer_format_is_not_damage(run: RunDir) -> None:
    for step in (1, 2):
        run.commit_checkpoint(step, {"a": b"%d" % step, "state.json": b'{"format": 1}'}, 9)
    manifest = run.checkpoints()[-1].path / "MANIFEST.json"
    newer = json.loads(manifest.read_bytes()) | {"format": 3}
    manifest.write_bytes(commit._render({key: newer[key] for key in newer if key != "sha256"}))
    before = tree(run.path / "checkpoints")
    with pytest.raises(NewerFormatError):
        run.load_checkpoint()
    assert run.load_checkpoint(1).files["a"] == b"1"
    run.close()
    with pytest.raises(NewerFormatError):
        RunDir.open(run.path.parent, "mine", write=True)
    assert tree(run.path / "checkpoints") == before


def test_stale_higher_steps_neither_survive_nor_win(run: RunDir) -> None:
    for step in (100, 200, 300):
        run.commit_checkpoint(step, {"a": b"old"}, 9)
    assert run.load_checkpoint(100).files == {"a": b"old"}
    run.commit_checkpoint(150, {"a": b"new"}, 2)
    assert steps(run) == [100, 150]
    assert run.load_checkpoint() == (150, {"a": b"new"}, ())


def test_without_a_valid_checkpoint_each_reason_is_listed(run: RunDir) -> None:
    assert fact(run.load_checkpoint) == ("no-checkpoint", "mine")
    for step in (1, 2):
        run.commit_checkpoint(step, {"a": b"x"}, 9)
        (run.path / "checkpoints" / f"step-{step:08d}" / "a").write_bytes(b"y")
    hashes = [f"  step-{step:08d}: {run.path}/checkpoints/step-{step:08d}/a is damaged: " for step in (2, 1)]
    why = "its hash differs from the one in MANIFEST.json"
    both = "\n".join([f"{run.path}: no checkpoint is valid", *(told + why for told in hashes)])
    assert str(refusal(run.load_checkpoint)) == both
    assert refusal(lambda: run.load_checkpoint(1)).message.startswith(f"{run.path}: the checkpoint of step 1 is not ")
    assert refusal(lambda: run.load_checkpoint(7)).hint == "it has: 1, 2"


def test_other_names_are_not_checkpoints(run: RunDir, tmp_path: Path) -> None:
    run.commit_checkpoint(5, {"a": b"x"})
    folder = run.path / "checkpoints"
    hidden = ".tmp-step-00000009-1-x"
    for name in ("step-9", "step-000000009", "step-0000000x", "step-00000009.bak", "STEP-00000009", hidden):
        shutil.copytree(folder / "step-00000005", folder / name)
    assert steps(run) == [5]
    shutil.copytree(folder / "step-00000005", folder / "step-00000008")
    (folder / "step-00000009").symlink_to(folder / "step-00000005")
    (folder / "step-00000010").write_text("x")
    step, _, notes = run.load_checkpoint()
    assert step == 5
    assert [note.split(": ")[1] for note in notes] == ["step-00000010", "step-00000009", "step-00000008"]
    assert "it was saved as step-00000005" in notes[2]
    away = tmp_path / "away"
    folder.rename(away)
    folder.symlink_to(away)
    for act in (run.load_checkpoint, run.checkpoints, lambda: run.commit_checkpoint(6, {"a": b"x"})):
        assert fact(act) == ("no-folder", "checkpoints")
    assert not (away / "step-00000006").exists()


def test_a_reader_follows_a_writer_that_rotates(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run.commit_checkpoint(1, {"a": b"1"}, 1)
    real, left = room.read_directory, [1]

    def slow(*args):
        if left:
            left.clear()
            run.commit_checkpoint(2, {"a": b"2"}, 1)
        return real(*args)

    monkeypatch.setattr(room, "read_directory", slow)
    assert run.load_checkpoint() == (2, {"a": b"2"}, ())


def test_a_reader_follows_a_writer_that_went_back(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (100, 200):
        run.commit_checkpoint(step, {"a": b"old"}, 2)
    real, left = room.read_directory, [1]

    def slow(*args):
        if left:
            left.clear()
            run.commit_checkpoint(150, {"a": b"new"}, 2)  # 200 vanishes while it is read; 100 stays
        return real(*args)

    monkeypatch.setattr(room, "read_directory", slow)
    assert run.load_checkpoint() == (150, {"a": b"new"}, ())


def test_the_curve_is_on_the_disk_before_the_checkpoint(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run.append("metrics.jsonl", [{"step": 1}])
    curve = (run.path / "metrics.jsonl").stat().st_ino
    seen: list[object] = []
    sync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(os.fstat(fd).st_ino), sync(fd))[1])
    monkeypatch.setattr(os, "rename", lambda *names: (seen.append("rename"), rename(*names))[1])
    run.commit_checkpoint(1, {"a": b"x"})
    assert seen.index(curve) < seen.index("rename")


def test_loading_and_saving_the_same_step_keeps_it(run: RunDir) -> None:
    run.commit_checkpoint(5, {"a": bytes(99)}, 1)
    for _ in range(3):
        run.commit_checkpoint(5, run.load_checkpoint().files, 1)
    assert run.load_checkpoint() == (5, {"a": bytes(99)}, ())


def test_everything_in_a_run_follows_the_umask(tmp_path: Path, umask) -> None:
    umask(0o027)
    with RunDir.create(tmp_path, "mine") as run:
        run.write_config("x")
        run.append("metrics.jsonl", [{"step": 1}])
        run.write_heads({})
        run.commit_checkpoint(1, {"a": b"x"})
    for path in [run.path, *run.path.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o750 if path.is_dir() else 0o640), path


def test_owning_a_run_deletes_leftovers_of_dead_writers(run: RunDir) -> None:
    run.commit_checkpoint(1, {"a": b"x"})
    run.close()
    folder = run.path / "checkpoints"
    left = [run.path / ".tmp-run.json-4194399-00000000", folder / ".tmp-step-00000002-4194399-00000000"]
    for path in left:
        path.mkdir()
    assert RunDir.open(run.path.parent, "mine").load_checkpoint().step == 1
    assert all(path.exists() for path in left)
    with RunDir.open(run.path.parent, "mine", write=True):
        assert not any(path.exists() for path in left)
