"""A folder that was deleted under its shell: what needs none works, all else is refused with the way out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from mhsa_cli.commands.deleted_folder import refuse_torch_without_folder
from mhsa_cli.errors import StorageError
from tests.commands.shell import mhsa


@pytest.fixture
def gone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder that was deleted; gives that with the tiny run."""
    place = tiny.parent.parent.absolute()
    lost = place / "lost"
    lost.mkdir()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.chdir(lost)
    lost.rmdir()
    return place


def test_what_needs_no_folder_works(gone: Path) -> None:
    run, runs = gone / "runs/tiny", gone / "runs"
    for command in (
        ["--help"], ["--version"], ["train", "--help"], ["config", "show"], ["config", "check", gone / "tiny.yaml"],
        ["config", "init", gone / "new.yaml"], ["runs", "--runs", runs], ["explain", run], ["verify", run],
        ["inspect-heads", "--runs", runs], ["curve", run, "-o", gone / "a.svg"],
        ["export", run, "--to", "csv", "-o", gone / "csv"],
    ):  # fmt: skip
        said = mhsa(*command)
        assert (said.code, "cd" in said.err.split()) == (0, False), (command, said.err)
    assert {"new.yaml", "a.svg", "csv"} <= {path.name for path in gone.iterdir()}


def test_what_needs_one_says_so(gone: Path) -> None:
    run = gone / "runs/tiny"
    for command, code in (
        (["runs"], 5), (["inspect-heads"], 5), (["explain", "tiny"], 5), (["train", "epochs=0"], 5), (["verify"], 5),
        (["sweep", "epochs=0"], 5), (["config", "init", "new.yaml"], 5), (["export", run, "--to", "csv"], 5),
        (["curve", run, "-o", "a.svg"], 5), (["check", "a.py:A"], 5), (["check", gone / "a.py"], 5),
        (["config", "check", "a.yaml"], 2), (["train", "-c", "a.yaml"], 2), (["train", "model.attention=a.py:A"], 2),
        (["sweep", "--resume", "s"], 4),
    ):  # fmt: skip
        said = mhsa(*command)
        assert said.code == code and "cd" in said.err.split() and "Errno" not in said.err, (command, said)
    assert mhsa("runs", "--json").out == ""


def test_torch_which_would_end_the_process_is_refused(gone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_torch_without_folder()
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(StorageError):
        importlib.import_module("torch")
    monkeypatch.chdir(gone)
    assert importlib.util.find_spec("torch") is not None
