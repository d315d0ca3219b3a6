"""Line ends changed by git: refused with the cause, and prevented in new folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.errors import RunError
from mhsa_cli.runs import line_ends
from mhsa_cli.runs.checkpoints import read_checkpoint
from mhsa_cli.runs.hashes import read_listed
from mhsa_cli.runs.line_ends import LineEndsError
from mhsa_cli.runs.listing import list_runs
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

CRLF, LF = b"\r\n", b"\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run that ended, of a text with the line ends of Windows."""
    with RunDir.create(tmp_path / "runs", "r") as run:
        run.write_config("seed: 7\n")
        run.append("metrics.jsonl", [{"kind": "eval", "step": step, "loss": 2.5, "accuracy": 0.25} for step in (0, 2)])
        run.append("heads.jsonl", [{"kind": "heads", "step": 0}])
        run.commit_checkpoint(3, {"state.json": b"{}\n"})
        run.write_heads({"step": 3})
        (run.path / "text.txt").write_bytes(b"one\r\ntwo\r\n")
        run.update(status="finished", step=3)
    return RunDir.open(tmp_path / "runs", "r")


READERS: dict[str, Callable[[RunDir], Any]] = {
    "run.json": RunDir.read_run_json,
    "config.yaml": RunDir.read_config_text,
    "metrics.jsonl": lambda run: list(run.records("metrics.jsonl")),
    "heads.json": RunDir.read_heads,
    "heads.jsonl": lambda run: list(run.records("heads.jsonl")),
    "text.txt": lambda run: read_listed(run.path, "text.txt", run.listed()),
    "checkpoints/step-00000003/MANIFEST.json": lambda run: read_checkpoint(run.checkpoints()[0]),
    "checkpoints/step-00000003/state.json": lambda run: read_checkpoint(run.checkpoints()[0]),
}


@pytest.mark.parametrize("name", READERS)
def test_changed_line_ends_are_not_damage(name: str, run: RunDir) -> None:
    path, read = run.path / name, READERS[name]
    data = path.read_bytes()
    assert read(run)
    other = data.replace(CRLF, LF) if CRLF in data else data.replace(LF, CRLF)
    kinds = []
    for wrong in (other, b"x" + other[1:], data + b"x"):
        path.write_bytes(wrong)
        with pytest.raises(RunError) as caught:
            read(RunDir(run.path))
        kinds.append(isinstance(caught.value, LineEndsError))
    assert kinds == [True, False, False]


def attributes(folder: Path) -> Path:
    return folder / ".gitattributes"


@pytest.mark.parametrize(
    "make", [lambda root: RunDir.create(root, "r").close(), lambda root: SweepDir.create(root, "s", "s", {}).close()]
)
def test_gitattributes_are_written_into_new_folders_only(make: Callable[[Path], None], tmp_path: Path) -> None:
    for name in ("empty", "used", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "used/notes.txt").touch()
    attributes(tmp_path / "own").write_text("a")
    for name in ("new", "empty", "used", "own"):
        make(tmp_path / name)
    assert attributes(tmp_path / "new").read_text().endswith("\n* -text\n")
    assert attributes(tmp_path / "empty").read_bytes() == attributes(tmp_path / "new").read_bytes()
    assert not attributes(tmp_path / "used").exists() and attributes(tmp_path / "own").read_text() == "a"
    assert [item.name for item in list_runs(tmp_path / "new")] in (["r"], [])


def test_a_run_is_created_where_gitattributes_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_ends, "ATTRIBUTES", "missing/.gitattributes")
    with RunDir.create(tmp_path, "r") as run:
        assert run.read_run_json()["status"] == "running"
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
