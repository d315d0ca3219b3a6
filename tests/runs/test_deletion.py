"""Deleting runs: what may go, what is refused, and a kill in the middle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mhsa_cli.errors import MhsaError
from mhsa_cli.runs import deletion
from mhsa_cli.runs.deletion import Deletable, delete, find_deletable, remove_leftovers
from mhsa_cli.runs.listing import LOCK, list_runs, list_sweeps
from mhsa_cli.runs.lock import RunLock
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

TRIAL = "n_heads=2_seed=7"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, a sweep of a trial, and what is neither; to stand beside."""
    monkeypatch.chdir(tmp_path)
    root = Path("runs")
    for name in ("a", "b"):
        RunDir.create(root, name).close()
    with SweepDir.create(root, "s", "s", {"cells": []}) as sweep:
        sweep.begin(TRIAL, 3, []).close()
    (root / "notes").mkdir()
    (root / "notes/config.yaml").write_text("mine")
    return root


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(root: Path, name: str) -> str:
    """The code of the error that refuses a name; nothing may have changed."""
    before = content(root)
    with pytest.raises(MhsaError) as caught:
        find_deletable(root, name)
    assert content(root) == before
    return caught.value.code


@pytest.mark.parametrize("name", ["a", "runs/a", "./runs/a", "newest"])
def test_a_run_is_deleted_by_any_of_its_names_and_nothing_else_is(name: str, root: Path) -> None:
    kept = "b" if name != "newest" else "a"
    beside = {path: data for path, data in content(root).items() if path.split("/")[0] in (kept, "s", "notes")}
    delete(find_deletable(root, name))
    assert {path for path in content(root) if path not in beside} == {".gitattributes"}
    assert [run.name for run in list_runs(root) if run.problem is None] == [kept]
    assert {path: content(root)[path] for path in beside} == beside


def test_a_run_is_deleted_from_inside(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "a")
    delete(find_deletable(Path(".."), "."))
    assert not Path("../a").exists() and Path("../b").exists()


def test_a_size_is_that_of_all_files_and_a_sweep_goes_with_its_trials(root: Path) -> None:
    (root / "s" / TRIAL / "metrics.jsonl").write_bytes(b"x" * 5000)
    found = find_deletable(root, "s")
    assert found == Deletable(root / "s", sum(map(len, content(root / "s").values())), 1)
    delete(found)
    assert list_sweeps(root) == [] and not (root / "s").exists()


def test_what_is_no_run_of_this_folder_is_refused(root: Path, tmp_path: Path) -> None:
    RunDir.create(tmp_path / "other", "c").close()
    (root / "link").symlink_to(tmp_path / "other/c")
    (root / "file").write_text("")
    wanted = {
        "": "usage", "nothing": "no-run", "notes": "no-run", "file": "no-run", "link": "link",
        "other/c": "elsewhere", "runs": "elsewhere", ".": "elsewhere", "runs/../other/c": "elsewhere",
        f"s/{TRIAL}": "trial", f"runs/s/{TRIAL}": "trial",
    }  # fmt: skip
    assert {name: refusal(root, name) for name in wanted} == wanted
    assert refusal(root / "s", TRIAL) == "trial"


def test_links_are_deleted_and_what_they_lead_to_is_not(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"y" * 9999)
    (root / "a/checkpoints").symlink_to(outside)
    (root / "a/heads.json").symlink_to(outside / "file")
    found = find_deletable(root, "a")
    assert found.bytes < 9999
    delete(found)
    assert not os.path.lexists(root / "a") and (outside / "file").stat().st_size == 9999


@pytest.mark.parametrize(("owned", "name"), [("a", "a"), ("s", "s"), (f"s/{TRIAL}", "s")])
def test_what_has_an_owner_stays(owned: str, name: str, root: Path) -> None:
    early = find_deletable(root, name)
    before = content(root)
    lock = RunLock(root / owned / LOCK)
    lock.acquire()
    assert refusal(root, name) == "busy"
    with pytest.raises(MhsaError) as caught:  # the owner came after the question
        delete(early)
    lock.check()
    lock.release()
    assert caught.value.code == "busy" and content(root).keys() == before.keys()
    delete(early)
    assert not (root / name).exists()


def test_a_damaged_run_and_one_that_never_began_can_be_deleted(root: Path) -> None:
    (root / "a/run.json").write_bytes(b"{")
    (root / "b/run.json").unlink()
    for name in "ab":
        delete(find_deletable(root, name))
    assert not (root / "a").exists() and not (root / "b").exists()


def test_a_kill_in_the_middle_leaves_no_half_of_a_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path) -> None:
        next(path.rglob("run.json")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deletion, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            delete(find_deletable(root, "a"))
    assert [run.name for run in list_runs(root)] == ["b", "notes"] and len(list(root.glob(".deleted-*"))) == 1
    remove_leftovers(root)
    assert list(root.glob(".deleted-*")) == [] and [run.name for run in list_runs(root)] == ["b", "notes"]


def test_a_disk_that_refuses_leaves_the_run_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(root)

    def refuse(*_: object) -> None:
        raise OSError(30, "read-only")

    found = find_deletable(root, "a")
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(MhsaError) as caught:
        delete(found)
    assert caught.value.code == "storage" and content(root) == before


def test_files_that_cannot_be_removed_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "remove", lambda path: None)
    with pytest.raises(MhsaError) as caught:
        delete(find_deletable(root, "a"))
    assert caught.value.code == "left-over" and not (root / "a").exists()


@pytest.mark.parametrize("folder", ["a", "s", f"s/{TRIAL}"])
def test_what_holds_files_of_somebody_else_stays(folder: str, root: Path) -> None:
    (root / folder / "thesis.txt").write_text("mine")
    assert refusal(root, folder.split("/")[0]) == "strangers"
