"""A sweep killed at every boundary of its work and inside it, resumed; and one with a trial that finds no memory."""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mhsa_cli.errors import StorageError
from tests.faults.client import ForkServer
from tests.faults.row import Place, Row

HERE = "tests.faults.rows.sweep"
SIZES = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "batch_size=5", "eval_sequences=9"]
GRID = ["sweep", *SIZES, "epochs=2", "steps_per_epoch=6", "n_heads=1,2", "--seeds", "3", "--name", "s"]


class Case(NamedTuple):
    """The function at whose `nth` call the process dies, before it or after it; "memory" is the trial without any."""

    at: str
    nth: int
    after: bool


BOUNDARIES = [
    Case("runs.sweep_dir:SweepDir.create", 1, True),
    Case("runs.sweep_dir:SweepDir.begin", 1, False),
    Case("runs.sweep_dir:SweepDir.begin", 2, True),
    Case("runs.run_dir:RunDir.write_config", 3, True),
    Case("core.training.stack:Stack.step", 1, False),
    Case("core.training.stack:Stack.step", 9, True),
    Case("runs.run_dir:RunDir.append", 3, True),
    Case("runs.run_dir:RunDir.commit_checkpoint", 2, False),
    Case("runs.run_dir:RunDir.commit_checkpoint", 3, True),
    Case("runs.run_dir:RunDir.write_heads", 2, True),
    Case("core.training.stack:Stack.step", 17, True),
    Case("runs.sweep_dir:SweepDir.write", 2, False),
    Case("runs.sweep_dir:SweepDir.write_report", 1, True),
    Case("memory", 1, False),
]


def cases(count: int, seed: int) -> Iterator[Case]:
    """The boundaries first, then any call of theirs."""
    yield from BOUNDARIES[:count]
    draw = random.Random(seed)
    for _ in range(count - len(BOUNDARIES)):
        yield Case(draw.choice(BOUNDARIES[1:-2]).at, draw.randint(1, 6), draw.random() < 0.5)


def die_at(patch: pytest.MonkeyPatch, at: str, nth: int, after: bool) -> None:
    """Kill this process at a call of a function."""
    module, _, path = at.partition(":")
    owner, _, method = path.partition(".")
    found = getattr(importlib.import_module(f"mhsa_cli.{module}"), owner)
    real, calls = getattr(found, method), [0]

    def instead(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **named)
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    patch.setattr(found, method, instead)


def no_memory_for(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Let a group that holds this seed find no memory."""
    from mhsa_cli.core.training.lockstep import Group

    real = Group.__init__

    def instead(self: Group, configs: Any, *given: Any, **named: Any) -> None:
        if seed in [config.train.seed for config in configs]:
            raise MemoryError
        real(self, configs, *given, **named)

    patch.setattr(Group, "__init__", instead)


def trust_anything(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a trial counts as done as soon as its folder is there."""
    from mhsa_cli.runs.sweep_dir import SweepDir

    patch.setattr(SweepDir, "is_done", lambda self, trial: (self.path / trial).exists())


def digests(sweep: Path) -> dict[str, str]:
    """The digest of every trial's weights, or its status."""
    found = {path.parent.name: json.loads(path.read_text()) for path in sweep.glob("*/run.json")}
    return {name: info.get("weights_sha256", info["status"]) for name, info in found.items()}


def done(sweep: Path) -> dict[str, dict[str, bytes]]:
    """Every byte of the trials that are finished."""
    runs = [path.parent for path in sweep.glob("*/run.json") if json.loads(path.read_text())["status"] == "finished"]
    return {run.name: {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()} for run in runs}


@cache
def unbroken(server: ForkServer) -> dict[str, str]:
    """The same sweep, left alone."""
    with tempfile.TemporaryDirectory() as folder:
        ended = server.run(GRID, Path(folder))
        assert ended.code == 0, ended.err
        return digests(Path(folder) / "runs/s")


def check(case: Case, place: Place) -> None:
    """Break it, go on, and compare."""
    wanted, sweep = unbroken(place.server), place.path / "runs/s"
    if case.at == "memory":
        ended = place.server.run(GRID, place.path, [*place.mutant, (f"{HERE}:no_memory_for", 43)])
        lost = {name: "failed" if name.endswith("=43") else digest for name, digest in wanted.items()}
        assert ended.code == StorageError.exit_code and digests(sweep) == lost, ended.err
    else:
        ended = place.server.run(GRID, place.path, [*place.mutant, (f"{HERE}:die_at", *case)])
        assert ended.code in (-signal.SIGKILL, 0), f"exit code {ended.code}: {ended.err}"
    finished = done(sweep)
    again = place.server.run(["sweep", "--resume", "s", "--json"], place.path, place.mutant)
    assert again.code == 0, again.err
    assert digests(sweep) == wanted, "the trials differ from those of a sweep that nobody disturbed"
    assert {name: files for name, files in done(sweep).items() if name in finished} == finished
    report = json.loads(again.out)
    assert [group["models"] for group in report["groups"]] == [3, 3]


ROW = Row(
    fault="a sweep killed at every boundary and inside; a trial that finds no memory",
    promise="P1",
    quick=14,
    long=60,
    cases=cases,
    check=check,
    mutant=f"{HERE}:trust_anything",
)
