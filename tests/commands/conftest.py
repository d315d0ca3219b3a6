"""Shared by the command tests: an empty place to stand in, and a tiny trained run to look at or to break."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import typer.main
from torch import Tensor

from mhsa_cli.core.heads import random_baseline
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.jobs.grade import runner
from mhsa_cli.jobs.sweep import local
from tests.commands.shell import TINY, mhsa
from tests.environment import FOREIGN
from tests.faults.client import ForkServer


def remembered(null_lifts: Callable[[TransformerLM, Task], dict[str, Tensor]]) -> Callable[..., dict[str, Tensor]]:
    """Keep what was measured by everything that it depends on: sizes and kinds of the model's parts, and the task's."""
    known: dict[str, dict[str, Tensor]] = {}
    kinds = (bool, int, float, str, tuple, range, type(None))

    def plain(thing: object) -> list[tuple[str, object]]:
        return sorted((name, value) for name, value in vars(thing).items() if isinstance(value, kinds))

    def instead(model: TransformerLM, task: Task) -> dict[str, Tensor]:
        if model.custom is not None or len(plain(task)) < len(vars(task)):  # what these depend on is a file, or code
            return null_lifts(model, task)
        parts = [(name, type(part), plain(part)) for name, part in model.named_modules()]
        weights = [(name, weight.shape, weight.dtype) for name, weight in model.named_parameters()]
        key = repr((random_baseline.HEADS, type(task), plain(task), parts, weights))
        if key not in known:
            known[key] = null_lifts(model, task)
        return known[key]

    return instead


GET_COMMAND = cache(typer.main.get_command)
NULL_LIFTS = remembered(random_baseline.null_lifts)


@pytest.fixture(scope="module", autouse=True)
def built_once() -> Iterator[None]:
    """The command line is built once for thousands of calls, as a process builds it once for its only one: 10 ms.

    Nothing waits for the disk: no power is cut here, and what syncs when is asked in tests/runs. Untrained heads of one
    shape and task are measured once: hundreds of trainings here have the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", GET_COMMAND)
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(random_baseline, "null_lifts", NULL_LIFTS)
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run, trained once; tests get copies of it."""
    place = tmp_path_factory.mktemp("trained")
    (place / "tiny.yaml").write_text(TINY)
    said = mhsa("train", "--config", place / "tiny.yaml", "--runs", place / "runs", "--name", "tiny")
    assert said.code == 0, said.err
    return place


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts commands in processes of their own, each the copy of one that has torch loaded."""
    with ForkServer(tmp_path_factory.mktemp("outputs")) as started:
        yield started


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a sweep be copies of one that has torch loaded, as those of `mhsa check` are."""
    monkeypatch.setattr(local, "get_context", lambda _: runner._context())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to stand in, with tiny.yaml, and an environment that asks for nothing."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    # Whoever started the tests with nohup or in the background of a script had these ignored.
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path
    signal.signal(signal.SIGHUP, hangup)
    signal.signal(signal.SIGINT, interrupt)
    torch.set_num_threads(1)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables keep to COLUMNS, as on a terminal; a pipe gets those that hold names as wide as they are."""
    from mhsa_cli.commands import output

    real = output.surface_of
    monkeypatch.setattr(output, "surface_of", lambda console: replace(real(console), bounded=True))


@pytest.fixture
def tiny(trained: Path, here: Path) -> Path:
    """A copy of the tiny run in ./runs, free to be broken."""
    shutil.copytree(trained / "runs", here / "runs")
    return Path("runs/tiny")
