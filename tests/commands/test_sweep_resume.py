"""A sweep that was broken off goes on from the newest step its trials share, bit for bit, without a gap in a curve."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import NonFiniteError
from mhsa_cli.jobs.sweep import chunk
from mhsa_cli.runs.run_dir import RunDir
from tests.commands.shell import SMALL, Said, at_step, facts, mhsa, tree

GRID = [*SMALL, "eval_sequences=9", "n_heads=1,2", "--seeds", 3]
CURVES = ("metrics.jsonl", "heads.json", "config.yaml")


def kept(sweep: Path) -> dict[str, Any]:
    """What a trial leaves that must not depend on how it was trained: its weights and its curves, to the last byte.

    Scores of heads over training differ in their 16th digit by how many steps are scored together.
    """
    found = {}
    for path in sorted(p.parent for p in sweep.glob("*/run.json")):
        info = facts(path)
        scores = [rounded(json.loads(line)) for line in (path / "heads.jsonl").read_text().splitlines()]
        own = {key: info[key] for key in ("weights_sha256", "final", "sweep", "status")}
        own |= {"checkpoints": [item.name for item in (path / "checkpoints").iterdir()], "scores": scores}
        own |= {name: (path / name).read_bytes() for name in CURVES}
        found |= {f"{path.name}: {key}": value for key, value in own.items()}  # a failure names what differs
    return found


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("unbroken")
    assert mhsa("sweep", *GRID, "--name", "s", "--runs", root).code == 0
    return kept(root / "s")


@contextmanager
def steps_counted() -> Iterator[list[tuple[int, int]]]:
    """List (models, step) of every training step."""
    made: list[tuple[int, int]] = []
    original = Stack.step

    def stepping(self: Stack, *given: Any, **more: Any) -> None:
        original(self, *given, **more)
        made.append((self.M, self.updates))

    with mock.patch.object(Stack, "step", stepping):
        yield made


def broken_off(at: int, *saves: int, more: tuple[str, ...] = ()) -> None:
    """Start a sweep that saves after these steps and dies in a step of its first chunk."""

    def die() -> None:
        raise SystemExit(9)

    with mock.patch.object(chunk._Clock, "is_due", lambda self, step: step in saves), at_step(at, die):
        assert mhsa("sweep", *GRID, *more, "--name", "s").code == 9


def resume(code: int = 0) -> tuple[Said, list[tuple[int, int]]]:
    with steps_counted() as made:
        said = mhsa("sweep", "--resume", "s")
    assert said.code == code, said.err
    return said, made


@pytest.mark.parametrize(("at", "saves"), [(9, (4,)), (24, (1, 5, 7, 23)), (17, (16,)), (1, ())])
def test_what_died_goes_on_from_its_newest_step(at: int, saves: tuple[int, ...], unbroken: dict[str, Any]) -> None:
    broken_off(at, *saves)
    last = max(saves, default=0)
    left = [Path("runs/s", name) for name in (".tmp-sweep.json", "n_heads=1_seed=43/checkpoints/.tmp-step-00000001")]
    for path in left:  # of a process whose id is somebody's again
        path.with_name(f"{path.name}-{os.getppid()}-0123abcd").mkdir(parents=True)
    said, made = resume()
    assert not list(Path("runs/s").rglob(".tmp-*"))
    assert [step for models, step in made if models == 3] == [*range(last + 1, 25), *range(1, 25)]
    assert kept(Path("runs/s")) == unbroken and "on from" not in said.err


def test_the_first_signal_saves_and_ends_within_a_step(unbroken: dict[str, Any]) -> None:
    with at_step(7, lambda: os.kill(os.getpid(), signal.SIGINT)):
        said = mhsa("sweep", *GRID, "--name", "s")
    assert said.code == 130 and "mhsa sweep --resume s" in said.err
    states = [facts(path.parent) for path in Path("runs/s").glob("*/run.json")]
    assert [(info["status"], info["step"]) for info in states] == [("stopped", 7)] * 3
    _, made = resume()
    assert made[0] == (3, 8) and kept(Path("runs/s")) == unbroken


def test_other_jobs_and_other_chunks_go_on_all_the_same(
    unbroken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_off(13, 4, 11)
    monkeypatch.setattr("mhsa_cli.jobs.sweep.capacity.MAX_STACK", 2)
    _, made = resume()
    assert [step for models, step in made if models == 2][:13] == list(range(12, 25))
    assert kept(Path("runs/s")) == unbroken


def test_trials_of_different_steps_go_on_each_from_its_own(unbroken: dict[str, Any]) -> None:
    broken_off(13, 4, 11)
    shutil.rmtree(Path("runs/s/n_heads=1_seed=43/checkpoints/step-00000011"))
    _, made = resume()
    assert [step for models, step in made if models == 2] == list(range(12, 25))
    assert [step for models, step in made if models == 1] == list(range(5, 25))
    assert kept(Path("runs/s")) == unbroken


def spoil(trial: str, step: int) -> None:
    path = Path(f"runs/s/{trial}/checkpoints/step-{step:08d}/model.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")


def test_a_damaged_checkpoint_takes_all_of_its_chunk_to_the_older_one(unbroken: dict[str, Any]) -> None:
    broken_off(13, 4, 11)
    spoil("n_heads=1_seed=44", 11)
    said, made = resume()
    assert "step 4" in said.err and "n_heads=1_seed=42" in said.err
    assert [step for models, step in made if models == 3] == [*range(5, 25), *range(1, 25)]
    assert kept(Path("runs/s")) == unbroken


def break_all(path: Path) -> None:
    for step in (4, 11):
        spoil(path.name, step)


def cut(path: Path, words: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if words not in line))
    assert len(path.read_text().splitlines()) == len(lines) - 1


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (break_all, "is damaged"),
        (lambda path: (path / "metrics.jsonl").unlink(), "its metrics"),
        (lambda path: cut(path / "metrics.jsonl", '"kind": "step", "step": 3,'), "its metrics"),
        (lambda path: cut(path / "heads.jsonl", '"step": 2,'), "its head scores"),
        (lambda path: (path / "metrics.jsonl").write_text('{"kind": "step", "st\n{}\n'), "metrics.jsonl"),
        (lambda path: (path / "heads.jsonl").write_text("x\n{}\n"), "heads.jsonl"),
    ],
)
def test_what_cannot_go_on_is_trained_from_the_start_and_said(harm: Any, why: str, unbroken: dict[str, Any]) -> None:
    broken_off(13, 4, 11)
    harm(Path("runs/s/n_heads=1_seed=43"))
    said, made = resume()
    assert [step for models, step in made if models == 3] == [*range(1, 25)] * 2
    assert "n_heads=1_seed=42" in said.err and why in said.err
    assert kept(Path("runs/s")) == unbroken


def test_what_another_torch_began_is_trained_from_the_start(unbroken: dict[str, Any]) -> None:
    with mock.patch("mhsa_cli.jobs.train.torch_version", lambda: "1.0"):
        broken_off(13, 4, 11)
    said, made = resume()
    assert [step for models, step in made if models == 3] == [*range(1, 25)] * 2
    assert "torch: 1.0 -> " in said.err
    assert kept(Path("runs/s")) == unbroken


def test_what_died_while_results_were_written_keeps_them_and_trains_nothing(unbroken: dict[str, Any]) -> None:
    written = []

    def update(run: RunDir, **info: Any) -> None:
        if info.get("status") == "finished":
            if len(written) == 2:
                raise SystemExit(9)
            written.append(run.path)
        original(run, **info)

    original = RunDir.update
    with mock.patch.object(RunDir, "update", update):
        assert mhsa("sweep", *GRID, "--name", "s").code == 9
    before = [tree(path) for path in written]
    _, made = resume()
    assert {models for models, _ in made} == {3} and len(made) == 24  # the second chunk's alone
    assert [tree(path) for path in written] == before and kept(Path("runs/s")) == unbroken


@contextmanager
def second_fails_at(step: int) -> Iterator[None]:
    """Let the second model of a stack of three meet a number that is not finite."""
    original = Stack.step

    def stepping(self: Stack, *given: Any, **more: Any) -> None:
        if self.M == 3 and self.updates + 1 == step:
            raise NonFiniteError("poisoned")
        original(self, *given, **more)

    with mock.patch.object(Stack, "step", stepping), mock.patch.object(Stack, "finite_slots", lambda self: [0, 2]):
        yield


def test_a_trial_that_failed_stays_failed_when_the_others_go_on(unbroken: dict[str, Any]) -> None:
    with second_fails_at(6):
        broken_off(13, 4, 11)
    failed = Path("runs/s/n_heads=1_seed=43")
    assert (facts(failed)["status"], facts(failed)["step"]) == ("failed", 5)
    before = tree(failed)
    _, made = resume(3)
    assert made[0] == (2, 12) and tree(failed) == before
    shutil.rmtree(failed)
    assert kept(Path("runs/s")) == {key: of for key, of in unbroken.items() if not key.startswith(f"{failed.name}:")}


def test_a_sweep_of_seconds_saves_each_trial_once() -> None:
    with mock.patch.object(RunDir, "commit_checkpoint", autospec=True, side_effect=RunDir.commit_checkpoint) as commits:
        assert mhsa("sweep", *GRID, "--name", "s").code == 0
    assert commits.call_count == 6
