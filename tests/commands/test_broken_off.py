"""A training that breaks off anywhere keeps its newest step, says how it stands, and goes on as if nothing had been."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.core.training.stack import Stack
from mhsa_cli.runs.checkpoints import list_checkpoints
from mhsa_cli.runs.run_dir import RunDir
from tests.commands.shell import TINY, at_step, facts, metrics, mhsa

SETTINGS = ["--config", "tiny.yaml", "epochs=3", "save_every=2", "eval_every=4"]  # 15 steps; epochs end at 5, 10, 15
RUN = Path("runs/r")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    root = tmp_path_factory.mktemp("unbroken")
    (root / "tiny.yaml").write_text(TINY)
    more = [str(root / text) if text == "tiny.yaml" else text for text in SETTINGS]
    assert mhsa("train", *more, "--runs", root, "--name", "r").code == 0
    return facts(root / "r")["weights_sha256"], metrics(root / "r")


@contextlib.contextmanager
def evaluation_of(step: int, action: Callable[[], None]) -> Iterator[None]:
    """Do something in the evaluation of a step, the first time."""
    real, done = Stack.evaluate, list[int]()

    def evaluate(self: Stack, *given: Any) -> Any:
        if self.updates == step and not done:
            done.append(step)
            action()
        return real(self, *given)

    with mock.patch.object(Stack, "evaluate", evaluate):
        yield


def stumble() -> None:
    raise ValueError("a bug")


def out_of_memory() -> None:
    raise MemoryError


def interrupt(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("step", "action", "code"), [(4, stumble, 1), (5, out_of_memory, 5), (10, out_of_memory, 5), (15, stumble, 1)]
)
def test_an_evaluation_that_fails_costs_no_step_that_was_to_be_saved(
    step: int, action: Callable[[], None], code: int, unbroken: tuple[Any, list[Any]]
) -> None:
    saved = step if step % 2 == 0 or step == 15 else step - 1
    with evaluation_of(step, action):
        assert mhsa("train", *SETTINGS, "--name", "r").code == code
    assert list_checkpoints(RUN)[-1].step == saved
    assert (facts(RUN)["status"], facts(RUN)["step"]) == ("failed", step)
    assert mhsa("verify", "r").code == 0
    assert mhsa("train", "--resume", "r").code == 0
    assert (facts(RUN)["weights_sha256"], metrics(RUN)) == unbroken


@pytest.mark.parametrize(
    ("action", "code", "status"),
    [
        (out_of_memory, 5, "failed"),
        (lambda: interrupt(signal.SIGINT, signal.SIGINT), 130, "interrupted"),
    ],
)
def test_a_run_that_fails_before_its_first_step_says_so_and_offers_only_what_works(
    action: Callable[[], None], code: int, status: str
) -> None:
    with evaluation_of(0, action):
        assert mhsa("train", *SETTINGS, "--name", "r").code == code
    assert (facts(RUN)["status"], facts(RUN)["step"], list_checkpoints(RUN)) == (status, 0, [])
    for command in ("runs", "curve", "timeline"):
        said = mhsa(command, "r")
        for offered in (line for line in said.out.splitlines() if line.startswith("next: ")):
            assert mhsa(*shlex.split(offered)[2:]).code == 0, offered
    trained = mhsa("train", "--config", RUN / "config.yaml", "--name", "again")
    assert trained.code == 0 and f"--config {RUN}/config.yaml" in mhsa("runs", "r").out


def test_a_resume_that_fails_before_its_first_step_stands_where_it_began(unbroken: tuple[Any, list[Any]]) -> None:
    with at_step(6, lambda: interrupt(signal.SIGINT)):
        assert mhsa("train", *SETTINGS, "--name", "r").code == 130
    with evaluation_of(6, stumble):
        assert mhsa("train", "--resume", "r").code == 1
    assert (facts(RUN)["status"], facts(RUN)["step"]) == ("failed", 6)
    assert mhsa("train", "--resume", "r").code == 0
    assert (facts(RUN)["weights_sha256"], metrics(RUN)) == unbroken


@pytest.mark.parametrize(("kind", "step"), [("eval", 10), ("epoch", 10), ("epoch", 15)])
def test_a_kill_between_a_save_and_what_is_measured_of_its_step_leaves_no_gap(
    kind: str, step: int, unbroken: tuple[Any, list[Any]]
) -> None:
    real = RunDir.append

    def append(self: RunDir, name: str, records: Any) -> None:
        if any((record["kind"], record["step"]) == (kind, step) for record in records):
            raise SystemExit(9)
        real(self, name, records)

    with mock.patch.object(RunDir, "append", append):
        assert mhsa("train", *SETTINGS, "--name", "r").code == 9
    assert list_checkpoints(RUN)[-1].step == step
    assert mhsa("train", "--resume", "r").code == 0
    assert (facts(RUN)["weights_sha256"], metrics(RUN)) == unbroken
    assert mhsa("verify", "r").code == 0


@pytest.mark.parametrize("step", [3, 5])
def test_a_stop_is_evaluated_where_it_stopped(step: int, unbroken: tuple[Any, list[Any]]) -> None:
    with at_step(step, lambda: interrupt(signal.SIGINT)):
        assert mhsa("train", *SETTINGS, "--name", "r").code == 130
    info = facts(RUN)
    assert (info["status"], info["step"], info["final"]["step"]) == ("stopped", step, step)
    short = ["--config", "tiny.yaml", "epochs=1", f"steps_per_epoch={step}", "--name", "short"]
    assert mhsa("train", *short).code == 0  # the same steps as a run of its own
    assert facts(Path("runs/short"))["final"] == info["final"]
    row = next(row for row in mhsa("runs", "--json").json if row["run"] == "runs/r")
    assert (row["step"], row["eval_loss"]) == (step, info["final"]["eval_loss"])
    assert mhsa("verify", "r").code == 0
    assert mhsa("train", "--resume", "r").code == 0
    assert (facts(RUN)["weights_sha256"], metrics(RUN)) == unbroken


PLACES: dict[str, tuple[int, Callable[[Callable[[], None]], Any]]] = {
    "a step": (6, lambda action: at_step(7, action)),
    "an evaluation": (8, lambda action: evaluation_of(8, action)),
    "the last look": (15, lambda action: mock.patch("mhsa_cli.jobs.train.measure_model", lambda *_: action())),
    "the last words": (15, lambda action: mock.patch("mhsa_cli.jobs.train.write_results", lambda *_, **__: action())),
}


@pytest.mark.parametrize(
    ("place", "number"), zip(PLACES, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT], strict=True)
)
def test_a_second_signal_anywhere_leaves_an_interrupted_run_at_its_step(place: str, number: int) -> None:
    step, during = PLACES[place]
    real = RunDir.update

    def update(self: RunDir, **info: Any) -> None:
        if info.get("status") == "interrupted":
            interrupt(number)  # a third one, while the end is noted
        real(self, **info)

    with during(lambda: interrupt(number, number)), mock.patch.object(RunDir, "update", update):
        said = mhsa("train", *SETTINGS, "--name", "r")
    saved = list_checkpoints(RUN)[-1].step
    assert said.code == 128 + number and f"step {step} of 15; step {saved} is saved" in said.err
    assert said.err.endswith("mhsa train --resume r\n")
    assert (facts(RUN)["status"], facts(RUN)["step"]) == ("interrupted", step)
    row = mhsa("runs", "--json").json[0]
    assert (row["status"], row["step"], row["eval_loss"], row["eval_accuracy"]) == ("interrupted", step, None, None)
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)  # given back


def test_what_a_crash_left_behind_the_checkpoint_is_counted_as_it_is_dropped(unbroken: tuple[Any, list[Any]]) -> None:
    with at_step(12, lambda: interrupt(signal.SIGINT, signal.SIGINT)):  # step 10 is saved; 11 is not read yet
        assert mhsa("train", *SETTINGS, "--name", "r").code == 130
    with RunDir.open(Path("runs"), "r", write=True) as run:
        run.update(status="running")  # as a kill leaves it
    with (RUN / "metrics.jsonl").open("a") as file:
        for step in (11, 12):
            file.write(json.dumps({"kind": "step", "step": step, "loss": 1.5, "accuracy": 0.5, "lr": 0.005}) + "\n")
        file.write('{"kind": "st')

    def dropped(*command: str) -> int:
        document = mhsa(*command, "--json").json
        return int(document["runs"][0]["dropped_records"] if command[0] == "curve" else document["dropped_records"])

    assert dropped("curve") == 1  # half a line
    assert dropped("train", "--resume", "r") == 3 == dropped("train", "--resume", "r")
    assert dropped("curve") == 3 and metrics(RUN) == unbroken[1]


def test_figures_of_another_step_are_not_shown() -> None:
    with at_step(4, lambda: interrupt(signal.SIGINT)):
        assert mhsa("train", *SETTINGS, "--name", "r").code == 130
    with at_step(12, lambda: interrupt(signal.SIGINT, signal.SIGINT)):
        assert mhsa("train", "--resume", "r").code == 130
    row = mhsa("runs", "--json").json[0]
    assert facts(RUN)["final"] is None and (row["step"], row["eval_loss"]) == (11, None)
    document = mhsa("compare", "r", "r", "--json").json
    assert [final["eval_loss"] for final in document["final"]] == [None, None]
