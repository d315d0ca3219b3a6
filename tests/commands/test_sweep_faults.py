"""One trial or chunk that goes wrong is told, tried again where that makes sense, and the others finish."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from mhsa_cli.commands.sweep_output import tell_failed
from mhsa_cli.config.load import load_config
from mhsa_cli.core.sweep_report import report
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import StorageError
from mhsa_cli.jobs.sweep import chunk as chunks
from mhsa_cli.jobs.sweep.chunk import Chunk
from mhsa_cli.jobs.sweep.local import EndedChunks, Fault
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.jobs.sweep.scheduler import Scheduler
from mhsa_cli.records.sweep import ChunkPlan, TrialResult
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from tests.commands.shell import at_step, digests, facts, mhsa

SMALL = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "epochs=2", "steps_per_epoch=6", "batch_size=5"]
GRID = [*SMALL, "eval_sequences=9", "n_heads=1,2", "--seeds", 3]


LONG = [text.replace("epochs=2", "epochs=12") if isinstance(text, str) else text for text in GRID]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("unbroken")
    assert mhsa("sweep", *GRID, "--name", "s", "--runs", root).code == 0
    return digests(root / "s")


def no_memory(fits: Callable[[list[int]], bool], *errors: BaseException) -> Any:
    """Let a group raise as it is built, unless its seeds fit: these errors in turn."""
    original, due = Group.__init__, cycle(errors)

    def build(self: Group, configs: Any, *given: Any, **more: Any) -> None:
        if not fits([config.train.seed for config in configs]):
            raise next(due)
        original(self, configs, *given, **more)

    return mock.patch.object(Group, "__init__", build)


OUT = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: 8 bytes"),
    RuntimeError("not enough memory: you tried to allocate 9 bytes"),
]


@pytest.mark.parametrize("errors", [OUT[:2], OUT[2:]], ids=str)
def test_a_stack_without_memory_is_trained_in_halves(errors: list[BaseException], unbroken: dict[str, Any]) -> None:
    with no_memory(lambda seeds: len(seeds) < 3, *errors):
        said = mhsa("sweep", *GRID, "--name", "s")
    assert said.code == 0 and digests() == unbroken
    for heads, error in enumerate(errors, 1):
        first = (str(error).splitlines() or ["out of memory"])[0]
        assert f"n_heads={heads}_seed=42 and 2 more: {first}" in said.err


def test_a_trial_without_memory_has_failed_and_is_tried_again_by_resume(unbroken: dict[str, Any]) -> None:
    with no_memory(lambda seeds: 43 not in seeds, MemoryError("no room")):
        said = mhsa("sweep", *GRID, "--name", "s", "--json")
    assert said.code == 5 and said.json["failed"] == 2
    lost = ["n_heads=1_seed=43", "n_heads=2_seed=43"]
    assert digests() == {**unbroken, **dict.fromkeys(lost, "failed")}
    failed = [run for run in said.json["runs"] if run["status"] == "failed"]
    assert [Path(run["run"]).name for run in failed] == lost
    assert all(run["cause"] == "memory" and "no room" in run["message"] for run in failed)
    assert "--resume" not in said.err and "train.batch_size" in said.err  # one process is as few as there can be
    again = mhsa("sweep", "--resume", "s")
    assert again.code == 0 and "6 trials, 4 finished" in again.err and digests() == unbroken


def test_where_several_processes_had_too_little_memory_one_may_do(capsys: pytest.CaptureFixture[str]) -> None:
    trial = TrialResult("s/seed=1", 0, 1, "failed", None, None, None, None, (), "", "memory")
    tell_failed(report([{}], [trial], 0.9), "s", alone=False)
    assert "mhsa sweep --resume s --jobs 1" in capsys.readouterr().err


def test_a_second_signal_ends_a_sweep_at_once_with_the_way_on() -> None:
    def twice() -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    with at_step(3, twice):
        said = mhsa("sweep", *GRID, "--name", "s")
    assert said.code == 130 and said.err.endswith("mhsa sweep --resume s\n")


def test_memory_that_ends_in_the_middle_costs_no_step_that_was_saved(unbroken: dict[str, Any]) -> None:
    made: list[tuple[int, int]] = []
    original = Stack.step

    def stepping(self: Stack, *given: Any, **more: Any) -> None:
        if self.M == 3 and self.updates == 7:
            raise MemoryError
        original(self, *given, **more)
        made.append((self.M, self.updates))

    with (
        mock.patch.object(chunks._Clock, "is_due", lambda self, step: step == 5),
        mock.patch.object(Stack, "step", stepping),
    ):
        assert mhsa("sweep", *GRID, "--name", "s").code == 0
    assert digests() == unbroken
    assert [step for models, step in made if models == 1] == [*range(6, 13)] * 2


def test_an_unexpected_error_costs_its_own_chunk_and_the_exit_code_says_so(unbroken: dict[str, Any]) -> None:
    def stumble() -> None:
        raise ValueError("a bug\nof ours")

    fired: list[int] = []
    with at_step(4, lambda: stumble() if not fired and fired.append(1) is None else None):
        said = mhsa("sweep", *GRID, "--name", "s")
    assert said.code == 1 and "wrote runs/s" in said.out
    assert "n_heads=1_seed=42 and 2 more: ValueError: a bug" in said.err
    assert "mhsa sweep --resume s" in said.err
    assert "line" in Path("runs/s/errors.txt").read_text() and "a bug" in Path("runs/s/errors.txt").read_text()
    assert digests() == {name: "interrupted" if "=1_" in name else digest for name, digest in unbroken.items()}
    assert "a bug" in facts(Path("runs/s/n_heads=1_seed=42"))["sweep"]["message"] and mhsa("verify", "s").code == 0
    assert mhsa("sweep", "--resume", "s").code == 0 and digests() == unbroken


def test_the_exit_code_is_that_of_the_worst_cause_whatever_was_said_and_whoever_wrote_it() -> None:
    """Results are set by hand: two settings of three seeds, of which so many failed."""
    assert mhsa("sweep", *GRID, "--name", "s").code == 0

    def fail(seed: int, **own: Any) -> None:
        with RunDir.open(Path("runs/s"), f"n_heads=1_seed={seed}", write=True) as run:
            run.update(status="failed", sweep={"cell": 0, "seed": seed, "message": "not finite", **own})

    def code(*causes: str) -> int:
        for seed in (42, 43, 44):
            fail(seed, **({"cause": causes[seed - 42]} if causes else {}))
        again = mhsa("sweep", "--resume", "s", "--json")
        assert again.json["failed"] == 3
        return again.code

    assert code("nonfinite", "nonfinite", "nonfinite") == 3
    assert code("nonfinite", "killed", "nonfinite") == code("memory", "nonfinite", "nonfinite") == 5
    assert code("nonfinite", "memory", "crashed") == 1
    assert code() == 3  # an older version kept no cause: one that is not tried again was not finite
    assert {run["cause"] for run in mhsa("sweep", "--resume", "s", "--json").json["runs"]} == {"nonfinite", None}


def test_what_all_chunks_would_meet_ends_the_sweep_at_once() -> None:
    def full() -> None:
        raise StorageError("the disk is full", "free some space")

    with at_step(4, full):
        said = mhsa("sweep", *GRID, "--name", "s")
    assert said.code == 5 and "the disk is full" in said.err
    assert len(list(Path("runs/s").glob("*/run.json"))) == 3


class Scripted:
    """An engine that does what a script says: chunks end at once, by a fault or with results."""

    slots = 2

    def __init__(self, sweep: SweepDir, script: Callable[[list[str], int], Fault | None]) -> None:
        self.sweep, self.script = sweep, script
        self.begun: list[list[str]] = []
        self.running: list[Chunk] = []
        self.beside: list[int] = []

    def start(self, chunk: Chunk) -> None:
        self.begun.append([trial.name for trial in chunk.trials])
        self.running.append(chunk)

    def wait(self) -> EndedChunks:
        self.beside.append(len(self.running))
        chunk = self.running.pop(0)
        names = [trial.name for trial in chunk.trials]
        fault = self.script(names, sum(begun == names for begun in self.begun))
        for trial in chunk.trials if fault is None else ():
            with self.sweep.begin(trial.name, 1, []) as run:
                run.update(status="finished")
        return [(chunk, fault)]

    def close(self) -> None:
        pass


class Quiet:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended: list[int] = []

    def begin(self, plan: ChunkPlan) -> None:
        assert plan.trials > 0

    def end(self, chunk: int, done: int) -> None:
        self.ended.append(done)

    def say(self, text: str) -> None:
        self.said.append(text)


KILLED = Fault("killed", "its process was ended by SIGKILL")


def scripted(
    tmp_path: Path, sizes: list[int], script: Callable[[list[str], int], Fault | None]
) -> tuple[Scripted, Quiet, SweepDir]:
    sweep = SweepDir.create(tmp_path / "runs", "s", "s", {"cells": []})
    config, work, seed = load_config(None, []), [], 0
    for number, size in enumerate(sizes):
        names = range(seed, seed + size)
        work.append(Chunk(number, tuple(Trial(0, f"seed={i}", config) for i in names), 0.99))
        seed += size
    engine, watcher = Scripted(sweep, script), Quiet()
    with sweep:
        Scheduler(sweep, engine, work, ["x"], watcher).run(lambda: False)
    return engine, watcher, sweep


def test_a_killed_chunk_is_halved_until_the_culprit_is_alone(tmp_path: Path) -> None:
    engine, watcher, sweep = scripted(tmp_path, [8, 3], lambda names, _: KILLED if "seed=5" in names else None)
    status = [sweep.info(f"seed={i}")["status"] for i in range(11)]
    assert status == ["finished"] * 5 + ["failed"] + ["finished"] * 5
    assert sweep.info("seed=5")["sweep"]["cause"] == "killed" and not sweep.is_done("seed=5")
    assert engine.begun.count(["seed=5"]) == 2 and engine.begun[-1] == ["seed=5"]
    assert engine.beside[-1] == 1  # at last nothing trained beside it
    assert sum(watcher.ended) == 10 and "seed=5" in watcher.said[-1]


def test_what_was_killed_once_and_fits_alone_is_finished(tmp_path: Path) -> None:
    script = lambda names, time: KILLED if names in (["seed=1"], ["seed=0", "seed=1"]) and time == 1 else None  # noqa: E731
    engine, watcher, sweep = scripted(tmp_path, [2, 1], script)
    assert [sweep.info(f"seed={i}")["status"] for i in range(3)] == ["finished"] * 3
    assert engine.begun[-1] == ["seed=1"] and "seed=1" in watcher.said[-1]


def test_a_worker_that_is_killed_costs_nothing_but_time(quick_workers: None) -> None:
    """Two real processes; the first that has begun a trial is killed with the signal nobody can catch."""
    over = threading.Event()

    def hunt() -> None:
        while not over.is_set():
            if list(Path("runs/s").glob("*/config.yaml")):
                for process in multiprocessing.active_children():
                    process.kill()
                    return
            time.sleep(0.002)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    said = mhsa("sweep", *LONG, "--name", "s", "--jobs", 2)
    over.set()
    hunter.join()
    assert said.code == 0 and "SIGKILL" in said.err
    assert mhsa("sweep", *LONG, "--name", "whole").code == 0
    assert digests() == digests(Path("runs/whole"))
