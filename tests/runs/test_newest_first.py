"""The newest of many runs are found by the times of their lock files: those that reading all of them finds."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.errors import RunError
from mhsa_cli.runs import disk, listing
from mhsa_cli.runs.json_file import dump_sealed
from mhsa_cli.runs.listing import LOCK, RUN, list_runs, load_info, newest_first, run_folders
from mhsa_cli.runs.run_dir import RunDir

COUNT, HOUR = 60, 3_600_000_000  # microseconds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sixty finished runs, begun an hour after each other, with a sweep and a file among them."""
    with RunDir.create(tmp_path / "first", "run") as run:
        run.update(status="finished")
    folder, info = tmp_path / "runs", load_info(tmp_path / "first/run")
    for number in random.Random(3).sample(range(COUNT), COUNT):
        path = folder / f"copy-h4-{number}"
        shutil.copytree(tmp_path / "first/run", path)
        order = info["order"] - (COUNT - number) * HOUR
        (path / RUN).write_bytes(dump_sealed({**info, "order": order}))
        for name in (LOCK, RUN):
            os.utime(path / name, ns=(order * 1000,) * 2)
    (folder / "sweep").mkdir()
    (folder / "sweep/sweep.json").write_text("{}")
    (folder / "notes.txt").write_text("x")
    return folder


def opened(action: Callable[[], object]) -> int:
    """Count the files that are opened."""
    real, count = disk.open_regular, [0]

    def opening(path: Path, flags: int) -> int:
        count[0] += 1
        return real(path, flags)

    with mock.patch.object(disk, "open_regular", opening):
        action()
    return count[0]


def age(root: Path, seed: int) -> None:
    """Let a third of the files be from now, as after a copy."""
    draw = random.Random(seed)
    for path in sorted(root.glob(f"*/{LOCK}")):
        if draw.random() < 1 / 3:
            os.utime(path)


def damage(root: Path, seed: int) -> None:
    """Break some, among them the newest."""
    names = random.Random(seed).sample(range(COUNT - 1), 7)
    for number in (*names[:4], COUNT - 1):
        (root / f"copy-h4-{number}" / RUN).write_text("{")
    for number in names[4:]:
        (root / f"copy-h4-{number}" / RUN).unlink()


def unlock(root: Path, seed: int) -> None:
    """Copy them without their hidden files."""
    for number in random.Random(seed).sample(range(COUNT), 20):
        (root / f"copy-h4-{number}" / LOCK).unlink()


def unpack(root: Path, seed: int) -> None:
    """Let all files be of one day long ago, as some archives do."""
    for path in root.glob("*/*"):
        os.utime(path, (seed, seed))


@pytest.mark.parametrize(
    "changes", [(), (age,), (damage,), (unlock,), (unpack,), (age, damage, unlock), (damage, unpack)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_newest_are_those_that_reading_all_finds(
    changes: tuple[Callable[[Path, int], None], ...], seed: int, root: Path
) -> None:
    for change in changes:
        change(root, seed)
    folders, whole = run_folders(root), list_runs(root)
    assert len(whole) == len(folders) == COUNT
    for count in (1, 2, 17, COUNT - 1, COUNT, COUNT + 1):
        assert newest_first(folders, count) == whole[:count]
    random.Random(seed).shuffle(folders)
    assert newest_first(folders, 9) == whole[:9]


def test_no_more_files_are_opened_than_runs_are_shown(root: Path) -> None:
    folders = run_folders(root)
    assert opened(lambda: run_folders(root)) == 0
    assert opened(lambda: newest_first(folders, 7)) == 7
    assert opened(lambda: newest_first(folders)) == COUNT
    assert opened(lambda: RunDir.open(root, "newest")) == 2  # once to find it, once to open it

    def mistype() -> None:
        with pytest.raises(RunError) as caught:
            RunDir.open(root, "copy-h4-59x")
        assert "did you mean: copy-h4-59, " in str(caught.value)

    assert opened(mistype) == 0


def test_a_new_run_reads_the_newest_alone_and_finds_its_name_without_asking_for_each(root: Path) -> None:
    (root / "copy-h4").mkdir()
    asked: list[str] = []
    real = os.mkdir

    def making(path: Path, *more: object) -> None:
        asked.append(Path(path).name)
        real(path, *more)  # type: ignore[arg-type]

    def create() -> None:
        with RunDir.create(root, stem="copy-h4") as run:
            assert run.name == f"copy-h4-{COUNT}"

    with mock.patch.object(os, "mkdir", making):
        assert opened(create) <= 4  # its own lock and run.json, and the newest run's
    assert [name for name in asked if name != "runs"] == [f"copy-h4-{COUNT}"]


def test_a_run_begun_by_a_clock_set_back_is_the_newest_and_stays_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10**15)
    for name in ("b", "c"):
        RunDir.create(root, name).close()
    with RunDir.open(root, "b", write=True):  # a resume writes its lock again
        pass
    names = [run.name for run in newest_first(run_folders(root), 3)]
    assert names == ["c", "b", f"copy-h4-{COUNT - 1}"] and listing.newest_run(root).name == "c"
