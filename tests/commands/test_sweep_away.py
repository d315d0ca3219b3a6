"""Chunks that train where the sweep's folder is not: files go in and out as plain data. No Ray is needed for this."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.errors import StorageError
from mhsa_cli.jobs.sweep import chunk as chunks
from mhsa_cli.jobs.sweep.chunk import Chunk
from mhsa_cli.jobs.sweep.plan import planned_trials
from mhsa_cli.jobs.sweep.ray import train_away
from mhsa_cli.records.sweep import ChunkProgress
from mhsa_cli.runs.archive import pack_run, unpack_runs
from mhsa_cli.runs.sweep_dir import SweepDir
from tests.commands.shell import facts, mhsa, tree
from tests.commands.test_sweep_resume import GRID, broken_off, kept, steps_counted


def test_trials_trained_away_are_those_trained_here() -> None:
    broken_off(9, 4)
    sweep = SweepDir(Path("runs/s"))
    trials = planned_trials(sweep.read())
    said: list[Any] = []
    for number, some in enumerate((trials[:3], trials[3:])):
        given = {trial.name: pack_run(sweep.path / trial.name) for trial in some if sweep.steps(trial.name)}
        with steps_counted() as made:
            fault, files = train_away(Chunk(number, tuple(some), 0.99), given, lambda: False, said.append)
        assert fault is None and made[0] == (3, 5 - 4 * number)
        unpack_runs(sweep.path, files)
    assert {type(message) for message in said} == {ChunkProgress} and said[-1].written == 3
    assert mhsa("sweep", "--resume", "s").code == 0  # only the report is missing
    assert mhsa("sweep", *GRID, "--name", "whole").code == 0
    assert kept(Path("runs/s")) == kept(Path("runs/whole"))


def test_what_goes_wrong_away_comes_back_with_what_there_is() -> None:
    assert mhsa("sweep", *GRID, "--name", "s").code == 0
    trials = tuple(planned_trials(SweepDir(Path("runs/s")).read())[:3])
    original = chunks.write_results

    def full(run: Any, *given: Any, **more: Any) -> None:
        if run.name.endswith("44"):
            raise MemoryError
        original(run, *given, **more)

    with mock.patch.object(chunks, "write_results", full):
        fault, files = train_away(Chunk(0, trials, 0.99), {}, lambda: False, lambda message: None)
    assert fault is not None and fault.kind == "memory"
    assert ["heads.json" in files[trial.name] for trial in trials] == [True, True, False]
    assert "checkpoints/step-00000024/model.safetensors" in files["n_heads=1_seed=44"]


def test_a_folder_goes_through_a_parcel_unchanged(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / ".tmp-x").mkdir(parents=True)
    (run / "checkpoints" / "step").mkdir()
    for name, data in (
        (".lock", b"l"),
        ("a.json", b"{}"),
        ("checkpoints/step/w", b"\0\xff"),
        ("checkpoints/.tmp-x/y", b""),
    ):
        (run / name).write_bytes(data)
    parcel = pack_run(run)
    assert parcel == {"a.json": b"{}", "checkpoints/step/w": b"\0\xff"}
    other = tmp_path / "other"
    (other / "old").mkdir(parents=True)
    unpack_runs(tmp_path, {"other": parcel})
    assert pack_run(other) == parcel and {path.name for path in tmp_path.iterdir()} == {"other", "run", "tiny.yaml"}
    assert {name: data for name, (data, _) in tree(other).items()} == parcel
    assert pack_run(tmp_path / "nothing") == {}


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_a_parcel_cannot_leave_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside"):
        unpack_runs(tmp_path, {"run": {name: b""}})


def test_a_full_disk_leaves_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_bytes(b"old")
    with (
        mock.patch.object(Path, "write_bytes", side_effect=OSError(28, "full")),
        pytest.raises(StorageError, match="No space"),
    ):
        unpack_runs(tmp_path, {"run": {"a": b"new"}})
    assert pack_run(tmp_path / "run") == {"a": b"old"} and {path.name for path in tmp_path.iterdir()} == {
        "run",
        "tiny.yaml",
    }


def test_whoever_dies_while_the_old_folder_goes_leaves_no_half_of_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a", "b"):
        (run / name).write_bytes(b"old")

    def dies(path: Path, **_: object) -> None:
        (path / "a").unlink()
        raise KeyboardInterrupt

    with mock.patch.object(shutil, "rmtree", side_effect=dies), pytest.raises(KeyboardInterrupt):
        unpack_runs(tmp_path, {"run": {"c": b"new"}})
    assert not run.exists()
    unpack_runs(tmp_path, {"run": {"c": b"new"}})
    assert pack_run(run) == {"c": b"new"} and {path.name for path in tmp_path.iterdir()} == {"run", "tiny.yaml"}


def test_a_missing_extra_is_said_before_anything_is_made() -> None:
    with mock.patch.dict(sys.modules, {"ray": None}):
        said = mhsa("sweep", *GRID, "--engine", "ray")
    assert said.code == 2 and "pip install 'mhsa-cli[ray]'" in said.err and not list(Path("runs").iterdir())
    assert "add --engine ray" in mhsa("sweep", *GRID, "--address", "auto").err


def test_trials_of_another_machine_are_told() -> None:
    with (
        mock.patch("mhsa_cli.jobs.sweep.chunk.cpu_kind", lambda: "Abacus, BEADS"),
        mock.patch("mhsa_cli.jobs.sweep.report.cpu_kind", lambda: "Abacus, BEADS"),
    ):
        said = mhsa("sweep", *GRID, "--name", "s")
        assert said.code == 0 and "bits may differ" not in said.err
    assert facts(Path("runs/s/n_heads=2_seed=43"))["cpu"] == "Abacus, BEADS"
    shutil.rmtree("runs/s/n_heads=2_seed=43")
    said = mhsa("sweep", "--resume", "s")
    assert said.code == 0 and "5 trials trained with torch" in said.err and "on Abacus, BEADS" in said.err
