"""Consistency of metrics.jsonl: the first lost, doubled or changed line is found."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.runs.metrics import Records
from mhsa_cli.runs.metrics_audit import Curve, Rhythm

PATH = Path("runs/r/metrics.jsonl")
EVERY = Rhythm(1, 3)
END = {"status": "finished", "step": 6, "final": {"eval_loss": 1.5, "eval_accuracy": 0.5, "step": 6}}


def lines(log_every: int = 1) -> list[dict[str, Any]]:
    """Two epochs of three steps, as a training writes them: losses 6, 5, 4 and 3, 2, 1."""
    found: list[dict[str, Any]] = [{"kind": "eval", "step": 0, "loss": 7.0, "accuracy": 0.0}]
    for step in range(1, 7):
        if step in (1, 6) or step % log_every == 0:
            found.append({"kind": "step", "step": step, "loss": 7.0 - step, "accuracy": 0.25, "lr": 0.5})
        if step % 3 == 0:
            found.append({"kind": "eval", "step": step, "loss": 7.5 - step, "accuracy": 0.5})
            mean = {3: 5.0, 6: 2.0}[step]
            epoch = {"kind": "epoch", "epoch": step // 3, "step": step, "loss": mean}
            found.append({**epoch, "eval_loss": 7.5 - step, "eval_accuracy": 0.5})
    return found


def curve(content: list[dict[str, Any]], rhythm: Rhythm | None = EVERY) -> Curve:
    return read("".join(json.dumps(line) + "\n" for line in content).encode(), rhythm)


def read(data: bytes, rhythm: Rhythm | None = EVERY) -> Curve:
    return Curve(Records(PATH, lambda: io.BytesIO(data)), rhythm)


def problem(content: list[dict[str, Any]], rhythm: Rhythm | None = EVERY) -> str:
    found = curve(content, rhythm)
    return found.problem or found.end_problem(END, 6)


@pytest.mark.parametrize("log_every", [1, 2, 4])
def test_a_complete_curve_has_no_problem(log_every: int) -> None:
    found = curve(lines(log_every), Rhythm(log_every, 3))
    assert (found.problem, found.end_problem(END, 6)) == ("", "")
    assert (found.last_step, found.epochs, found.step) == (6, 2, 6)
    assert found.line == len(lines(log_every))


@pytest.mark.parametrize("number", range(1, 11))
def test_a_lost_line_is_missed_but_for_the_first_evaluation(number: int) -> None:
    content = lines()
    gone = content.pop(number)
    assert problem(content) != "" or gone["kind"] == "eval" and gone["step"] != 6
    assert problem([*content[:number], gone, gone, *content[number:]]) != ""


@pytest.mark.parametrize(
    ("number", "change", "says", "line"),
    [
        (2, {"step": 1}, "step 1 comes twice", 2),
        (3, {"step": 1}, "step 1 comes after step 2", 3),
        (3, {"step": 4}, "steps 3 to 3 are missing", 3),
        (1, {"step": 2}, "steps 1 to 1 are missing", 1),
        (2, {"loss": 5.5}, "epoch 1: its loss is not the mean of its steps", 0),
        (7, {"loss": 2.5}, "epoch 2: its loss is not the mean of its steps", 6),
        (5, {"eval_loss": 4.25}, "epoch 1: its evaluation is not that of step 3", 5),
        (4, {"accuracy": 0.25}, "epoch 1: its evaluation is not that of step 3", 5),
        (5, {"step": 4}, "epoch 1 ends at step 4, not 3", 5),
        (10, {"epoch": 3}, "epoch 3 comes after epoch 1", 10),
        (6, {"accuracy": 1.5}, "step 4: its accuracy is 1.5", 6),
        (6, {"kind": "step", "lr": "x"}, "not a step record: lr is", 6),
    ],
)
def test_the_first_wrong_place(number: int, change: dict[str, Any], says: str, line: int) -> None:
    content = lines()
    content[number].update(change)
    found = curve(content)
    assert says in found.problem and found.line == line


def test_lines_that_are_no_json_name_their_place() -> None:
    data = "".join(json.dumps(line) + "\n" for line in lines()).encode()
    found = read(data.replace(b'"step": 2', b'"step": 2}', 1))
    assert found.problem.startswith("3:") and "damaged JSON" in found.problem and found.line == 2
    cut = read(data[:-9])  # torn by a crash: left out
    assert cut.problem == "" and cut.line == 10 and cut.end_problem(END, 6) == "it has 1 epochs, the run 2"


def test_the_end_is_that_of_the_run() -> None:
    whole = curve(lines())
    assert whole.end_problem({**END, "step": 9}, 9) == "it ends at step 6, the run at step 9"
    assert whole.end_problem({**END, "step": 5}, 5) == "it ends at step 6, the run at step 5"
    other = {**END, "final": {"eval_loss": 1.25, "eval_accuracy": 0.5, "step": 6}}
    assert whole.end_problem(other, 6) == "the evaluation of step 6 is not the one in run.json"
    assert whole.end_problem({"status": "interrupted"}, 6) == ""
    assert whole.end_problem({"status": "interrupted"}, 8) == "it ends at step 6, before the checkpoint of step 8"
    part = curve(lines(4)[:4], Rhythm(4, 3))  # stopped after step 3: the next that is told would be 4
    assert part.last_step == 1 and part.end_problem({"status": "stopped", "step": 3}, 3) == ""
    assert part.end_problem({"status": "stopped", "step": 5}, 5) != ""


def test_non_finite_numbers_and_an_unknown_interval_are_not_damage() -> None:
    content = lines()
    content[7].update(loss=None, nonfinite={"loss": "nan"})
    assert problem(content) == ""
    content[9].update(loss=None, nonfinite={"loss": "nan"})
    content[10].update(eval_loss=None, nonfinite={"eval_loss": "nan"})
    found = curve(content)
    assert found.problem == "" and found.last_eval is not None and math.isnan(found.last_eval.loss)
    assert problem(lines(3), Rhythm(1, 3, since=5)) == "" != problem(lines(3), Rhythm(1, 3, since=2))
    assert problem(lines(), None) == ""
    assert problem([{"kind": "of the future"}, *lines()]) == ""
