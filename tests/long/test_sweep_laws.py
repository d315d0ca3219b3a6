"""What a sweep promises whatever happens: a trial's bits depend on its config alone, and a result is never touched."""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.jobs.sweep import capacity, chunk, local
from mhsa_cli.jobs.sweep.plan import planned_trials
from tests.commands.shell import SMALL, digests, facts, mhsa, tree
from tests.commands.test_sweep_resume import kept
from tests.faults.client import ForkServer

GRID = [*SMALL, "eval_sequences=9", "n_heads=1,2", "--seeds", "3"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digest of each trial's weights, trained by `mhsa train`."""
    root, found = tmp_path_factory.mktemp("alone"), {}
    for heads in (1, 2):
        for seed in range(42, 45):
            settings = [*SMALL, "eval_sequences=9", f"n_heads={heads}", f"seed={seed}"]
            assert mhsa("train", *settings, "--name", "run", "--runs", root / f"{heads}-{seed}").code == 0
            found[f"n_heads={heads}_seed={seed}"] = facts(root / f"{heads}-{seed}" / "run")["weights_sha256"]
    return found


@pytest.mark.parametrize(("size", "shuffle"), [(1, None), (2, 1), (64, 3)])
def test_a_trial_is_itself_in_any_order_and_any_stack(size: int, shuffle: int | None, alone: dict[str, str]) -> None:
    in_order = planned_trials

    def trials(plan: dict[str, Any]) -> list[Any]:
        found = in_order(plan)
        if shuffle is not None:
            random.Random(shuffle).shuffle(found)
        return found

    with mock.patch.object(capacity, "MAX_STACK", size), mock.patch("mhsa_cli.jobs.sweep.run.planned_trials", trials):
        assert mhsa("sweep", *GRID, "--name", "s").code == 0
    assert digests() == alone


def test_a_trial_is_itself_for_any_number_of_jobs(alone: dict[str, str], quick_workers: None) -> None:
    assert mhsa("sweep", *GRID, "--name", "s", "--jobs", 3).code == 0
    assert digests() == alone


def often(_: pytest.MonkeyPatch) -> None:
    """Let a sweep save all the time, and let its processes be copies of its own."""
    chunk.SAVE_SECONDS = 0.1  # type: ignore[misc]
    local.get_context = lambda _: get_context("fork")  # type: ignore[assignment,attr-defined]


LONG = [*SMALL[:4], "batch_size=5", "eval_sequences=9", "n_heads=1,2,4", "steps_per_epoch=50"]


@pytest.mark.parametrize(("kills", "epochs", "seeds", "seed"), [(2, 1, 4, 5), (10, 32, 12, 7)])
def test_a_sweep_killed_at_random_moments_is_completed_and_no_result_is_touched(
    kills: int, epochs: int, seeds: int, seed: int, here: Path, server: ForkServer
) -> None:
    chance, done, state = random.Random(seed), dict[Path, Any](), list[tuple[int, int]]()
    grid = [*LONG, f"epochs={epochs}", "--seeds", str(seeds)]
    for number in range(kills):
        what = ["--resume", "k"] if Path("runs/k/sweep.json").exists() else [*grid, "--name", "k"]
        jobs = str(1 + number % 2)
        process = server.start(["sweep", *what, "--jobs", jobs], here, [["tests.long.test_sweep_laws:often"]])
        # By what it has written, not by the clock: on a slow day starting takes longer than training.
        seen, first, until = set[Path](), written(), chance.randrange(0, 100)
        while not process.ended_with() and len(seen - first) <= until:
            seen |= written()
            time.sleep(chance.uniform(0, 0.01))
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait().code == -signal.SIGKILL
        finished = [p.parent for p in Path("runs/k").glob("*/run.json") if status(p.parent) == "finished"]
        assert all(tree(path) == was for path, was in done.items()) and set(done) <= set(finished)
        done |= {path: tree(path) for path in finished}
        steps = [int(path.name[5:]) for path in Path("runs/k").glob("*/checkpoints/step-*")]
        state.append((len(done), max(steps, default=0)))
    print(f"results and highest checkpoint after each kill: {state}")
    assert mhsa("sweep", "--resume", "k").code == 0
    assert all(tree(path) == was for path, was in done.items())
    assert mhsa("sweep", *grid, "--name", "unbroken").code == 0
    assert kept(Path("runs/k")) == kept(Path("runs/unbroken")) and len(digests(Path("runs/k"))) == 3 * seeds


def written() -> set[Path]:
    """Everything in the sweep that has a name: files, checkpoints, and what is just being written."""
    return {Path(folder, name) for folder, _, names in os.walk("runs/k") for name in ("", *names)}


def status(run: Path) -> Any:
    return facts(run).get("status") if (run / "run.json").exists() else None
