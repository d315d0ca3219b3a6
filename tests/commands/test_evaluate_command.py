"""mhsa evaluate: the figures of the run itself, of its task with other settings, and every way of asking wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.config.tasks import DATA_FILES
from mhsa_cli.renderers.pictures.evaluation import UNCHANGED
from tests.commands.shell import codes_without_torch, facts, mhsa, tree

INDUCTION = ("train", "task.name=induction", "vocab_size=13", "seq_len=16", "max_period=5", "d_model=12", "epochs=1")
QUICK = ("steps_per_epoch=7", "batch_size=6", "eval_sequences=300", "--name")


def results(*arguments: str) -> list[dict[str, Any]]:
    said = mhsa("evaluate", *arguments, "--json")
    assert said.code == 0, said.err
    found: list[dict[str, Any]] = said.json["results"]
    return found


@pytest.mark.parametrize(
    "settings", [(), ("dropout=0.2", "positions=learned"), ("train.dtype=float64",), ("train.dtype=bfloat16",)]
)
def test_a_run_on_its_own_rows_has_the_figures_it_ended_with(settings: tuple[str, ...], here: Path) -> None:
    """To the last bit, though more rows are evaluated than run together."""
    assert mhsa(*INDUCTION, *settings, *QUICK, "i").code == 0
    info = facts(here / "runs" / "i")
    (found,) = results("i")
    assert (found["loss"], found["accuracy"]) == (info["final"]["eval_loss"], info["final"]["eval_accuracy"])
    assert (found["rows"], found["seen"]) == (300, info["eval_rows_seen"])
    assert {"loss": found["chance_loss"], "accuracy": found["chance_accuracy"]} == info["chance"]


def test_each_setting_is_a_row_and_the_first_is_as_trained(here: Path) -> None:
    assert mhsa(*INDUCTION, *QUICK, "i").code == 0
    before = tree(here / "runs")
    found = results("i", "max_period=4,5,6", "--rows", "40")
    assert [one["settings"] for one in found] == [{}, *({"max_period": period} for period in (4, 5, 6))]
    own, shorter, same, longer = ({**one, "settings": {}} for one in found)
    assert own == same and own["loss"] not in (shorter["loss"], longer["loss"])
    grid = results("i", "max_period=4,6", "task.min_period=2,3", "--rows", "40")[1:]
    assert [tuple(one["settings"].values()) for one in grid] == [(4, 2), (4, 3), (6, 2), (6, 3)]
    assert {**tree(here / "runs"), "i/.lock": None} == {**before, "i/.lock": None}


def test_rows_seed_and_step(tiny: Path) -> None:
    """The tiny run has 9 rows of seed 8; a step of its curve is evaluated anew."""
    last, (first,) = mhsa("train", "--config", "tiny.yaml", "--name", "again", "--json").json, results("tiny")
    assert first["loss"] == last["final"]["eval_loss"] == results("tiny", "--seed", "8", "--rows", "9")[0]["loss"]
    assert results("tiny", "--seed", "9")[0]["loss"] != first["loss"]
    assert results("tiny", "--rows", "31")[0]["rows"] == 31
    said = mhsa("evaluate", "tiny", "--step", "5", "--json").json
    epochs = mhsa("train", "--config", "tiny.yaml", "--name", "third", "--json").json["epochs"]
    assert said["step"] == 5 and said["results"][0]["loss"] == epochs[0]["eval_loss"]
    untrained = results("tiny", "--step", "0")[0]
    assert untrained["seen"] == 0 and untrained["loss"] > first["loss"]


def test_longer_rows_need_positions_without_a_table(tiny: Path) -> None:
    """The tiny run has learned 6 positions."""
    said = mhsa("evaluate", "tiny", "seq_len=7")
    assert said.code == 2 and said.out == "" and "task.seq_len=7" in said.err
    assert [one["settings"] for one in results("tiny", "seq_len=4,6")] == [{}, {"seq_len": 4}, {"seq_len": 6}]
    assert mhsa("train", "--config", "tiny.yaml", "positions=alibi", "--name", "alibi").code == 0
    found = results("alibi", "seq_len=6,50")
    assert len(found[2]["positions"]) == 50 and found[2]["seen"] == 0
    assert found[1] == {**found[0], "settings": {"seq_len": 6}}


@pytest.mark.parametrize(
    "wrong",
    [
        ("vocab_size=12",),  # the model has 11 ids
        ("task.name=copy",),
        ("task.loss_on=all",),
        ("task.period_per=batch",),
        *((f"task.{key}=x.txt",) for key in DATA_FILES.values()),
        ("train.lr=0.1",),
        ("n_heads=3",),
        ("task.nothing=1",),
        ("seq_len=0",),
        ("seq_len=",),
        ("seq_len=4", "seq_len=5"),
        ("other", "more"),
        ("--rows", "0"),
        ("--task", "own.py:Task"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_evaluated_is_refused(wrong: tuple[str, ...], tiny: Path) -> None:
    said = mhsa("evaluate", "tiny", *wrong)
    assert said.code == 2 and said.out == ""
    assert "=" not in wrong[-1] or wrong[-1].partition("=")[0].rpartition(".")[2] in said.err


def test_a_task_with_another_separator_is_refused(here: Path) -> None:
    assert mhsa("train", "task.name=copy", "vocab_size=12", "seq_len=8", "d_model=8", "epochs=1", *QUICK, "c").code == 0
    assert mhsa("evaluate", "c", "vocab_size=11").code == 2
    in_place = mhsa("evaluate", "c", "separator=false")
    assert in_place.code == 2 and "the id 11" in in_place.err and "None" not in in_place.err
    found = results("c", "seq_len=4,8", "--rows", "9")
    assert [[place["at"] for place in one["positions"]] for one in found[1:]] == [[2, 3], [4, 5, 6, 7]]
    assert [[place["at"] for place in one["answers"]] for one in found[1:]] == [[0, 1], [0, 1, 2, 3]]


def test_settings_of_a_task_of_ones_own(here: Path) -> None:
    (here / "mine.py").write_text(OWN)
    own = ("--task", "mine.py:Steps")
    command = ("train", "task.name=mine.py:Steps", "task.size=3", "d_model=8", "epochs=1", *QUICK, "own")
    assert mhsa(*command).code == 0
    assert mhsa("evaluate", "own", "size=2").code == 2  # its file runs only if it is named
    found = results("own", "size=2,3", *own)
    assert [one["settings"] for one in found] == [{}, {"size": 2}, {"size": 3}]
    assert {**found[2], "settings": {}} == found[0] != found[1]
    assert mhsa("evaluate", "own", "task.other=2", *own).code == 2


OWN = """\
import torch


class Steps:
    def __init__(self, vocab_size=9, seq_len=5, size=1):
        self.vocab_size, self.seq_len, self.size = vocab_size, seq_len, size

    def sample(self, generator, rows):
        first = torch.randint(9, (rows, 1), generator=generator)
        ids = (first + self.size * torch.arange(6)) % 9
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
"""


def test_wrong_settings_are_refused_without_torch(tiny: Path) -> None:
    assert codes_without_torch(["evaluate", "tiny", "train.lr=1"], ["evaluate", "tiny", "seq_len=0"]) == [2, 2]


def test_of_a_sweep_each_setting_has_the_medians_of_its_trials(here: Path) -> None:
    settings = ("task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "epochs=1", "steps_per_epoch=9")
    assert mhsa("sweep", *settings, "eval_sequences=30", "n_heads=1,2", "--seeds", "3", "--name", "s").code == 0
    said = mhsa("evaluate", "s", "seq_len=4", "--json")
    assert said.code == 0, said.err
    groups = said.json["groups"]
    assert [(one["overrides"]["model.n_heads"], one["settings"]) for one in groups] == [
        ("1", {}), ("1", {"seq_len": 4}), ("2", {}), ("2", {"seq_len": 4})
    ]  # fmt: skip
    report = mhsa("sweep", "show", "s", "--json").json["groups"]
    assert [one["loss"]["estimate"] for one in groups[::2]] == [one["final_loss"]["estimate"] for one in report]
    trials = [results(f"s/n_heads=2_seed={seed}", "seq_len=4")[1] for seed in (42, 43, 44)]
    for key in ("loss", "accuracy", "exact_match"):
        assert groups[3][key]["estimate"] == sorted(one[key] for one in trials)[1]
    assert groups[3]["models"] == 3 and mhsa("evaluate", "s", "--step", "0").code == 2
    assert mhsa("evaluate", "s").out.count(UNCHANGED) == 2
