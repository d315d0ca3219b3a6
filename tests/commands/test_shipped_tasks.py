"""Tasks installed with the recipes: found from any folder, run without --task, never mistaken for another file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.config.own_task import installed_task, located
from mhsa_cli.config.recipes import FOLDER
from mhsa_cli.core.heads import random_baseline
from tests.commands.shell import facts, mhsa

TASK = "task.name=tasks/sort.py:Sort"
SMALL = ("vocab_size=7", "seq_len=6", "d_model=8", "n_heads=2", "epochs=1", "steps_per_epoch=4", "eval_sequences=20")
ASK = ("inspect-heads", "own", "--ablate", "L0.H0")
RUN = Path("runs/own")


@pytest.fixture(scope="module", autouse=True)
def few_untrained_heads() -> Iterator[None]:
    with mock.patch.object(random_baseline, "HEADS", 8), mock.patch.object(random_baseline, "RANDOM_HEADS", 8):
        yield


@pytest.fixture(autouse=True)
def folder(here: Path) -> None:
    """Work in an empty folder."""


def other(name: str = "tasks/sort.py") -> Path:
    """Write another file of the same name here; it says when it runs."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    text = (FOLDER / "tasks/sort.py").read_text()
    path.write_text(f"{text}\nfrom pathlib import Path\n\nPath('ran').touch()\n")
    return path


def test_a_run_of_an_installed_task_needs_no_permission() -> None:
    assert mhsa("train", TASK, *SMALL, "--name", "own").code == 0
    assert facts(RUN)["own_task"]["file"] == "tasks/sort.py" and facts(RUN)["task"] == "Sort"
    assert set(facts(RUN)["baselines"]) == {"any symbol of the row"}
    assert mhsa(*ASK).code == 0
    assert mhsa("generate", "own", "--prompt", "3 1 2 |").code == 0
    assert mhsa("train", "--resume", "own", "epochs=2").code == 0
    assert mhsa("export", "own", "--to", "npz", "-o", "out.npz").code == mhsa("compare", "own", "own").code == 0


def test_a_file_here_of_the_same_name_is_no_stand_in_for_the_installed_one() -> None:
    assert mhsa("train", TASK, *SMALL, "--name", "own").code == 0
    file = other()
    assert mhsa(*ASK).code == 0 and mhsa("train", "--resume", "own", "epochs=2").code == 0
    assert not Path("ran").exists()
    said = mhsa(*ASK, "--task", "tasks/sort.py:Sort")  # this one is asked for, and is another
    assert said.code == 0 and Path("ran").exists() and "is not the file own was trained on" in said.err
    assert mhsa("train", "--resume", "own", "epochs=3", "--task", "tasks/sort.py:Sort").code == 4
    file.unlink()
    assert mhsa("train", "--resume", "own", "epochs=3", "--task", "tasks/sort.py:Sort").code == 0


def test_a_run_trained_with_a_file_here_still_asks_for_it() -> None:
    file = other()
    said = mhsa("train", TASK, *SMALL, "--name", "own")
    assert said.code == 0 and Path("ran").exists() and "not the one installed" in said.err
    file.unlink()
    Path("ran").unlink()
    refused = mhsa(*ASK)
    assert refused.code == 2 and "--task tasks/sort.py:Sort" in refused.err
    assert mhsa("train", "--resume", "own", "epochs=2").code == 2
    noted = mhsa(*ASK, "--task", "tasks/sort.py:Sort")  # the installed one, named
    assert noted.code == 0 and "is not the file own was trained on" in noted.err


def test_a_sweep_of_an_installed_task_is_resumed_without_permission() -> None:
    assert mhsa("sweep", TASK, *SMALL, "--seeds", "2", "--name", "s").code == 0
    first = json.loads(mhsa("sweep", "show", "s", "--json").out)
    other()
    shutil.rmtree(next(Path("runs/s").glob("*/run.json")).parent)
    again = mhsa("sweep", "--resume", "s", "--json")
    assert again.code == 0 and not Path("ran").exists()
    assert [one["weights_sha256"] for one in again.json["runs"]] == [one["weights_sha256"] for one in first["runs"]]


def test_the_goal_of_a_sweep_is_that_of_its_task() -> None:
    small = ("d_model=8", "n_heads=2", "epochs=1", "steps_per_epoch=2", "eval_sequences=20", "seq_len=9")
    assert mhsa("sweep", "task.name=tasks/markov.py:Markov", *small, "--seeds", "2", "--name", "s").code == 0
    assert 0.4 < json.loads(Path("runs/s/sweep.json").read_text())["goal"] < 0.7
    assert mhsa("sweep", TASK, *SMALL, "--seeds", "2", "--name", "t").code == 0
    assert json.loads(Path("runs/t/sweep.json").read_text())["goal"] == 0.99


def test_baselines_are_shown_where_chance_is() -> None:
    said = mhsa("train", "task.name=tasks/markov.py:Markov", "seq_len=9", "d_model=8", *SMALL[4:], "--name", "own")
    kept = facts(RUN)["baselines"]
    assert list(kept) == ["unigram", "bigram"]
    for name, loss in kept.items():
        assert f"{name} {loss:.2f}" in said.out and f"{name} {loss:.4f}" in said.out
    drawn = mhsa("tasks", "tasks/markov.py:Markov", "--json").json
    assert list(drawn["baselines"]) == ["unigram", "bigram"]
    for command in ("curve", "timeline"):
        assert f"bigram {kept['bigram']:.2f}" in mhsa(command, "own").out


def test_only_files_of_the_recipes_folder_are_installed_ones() -> None:
    name = "tasks/sort.py:Sort"
    assert installed_task(name) == located(name) == f"{FOLDER / 'tasks/sort.py'}:Sort"
    assert installed_task(f"{FOLDER}/tasks/sort.py:Sort") is not None
    outside = Path("sort.py").resolve()
    other("sort.py")
    up = "../" * 9 + str(outside).lstrip("/")
    for own in (
        f"{outside}:Sort",
        f"{up}:Sort",
        "sort.py:Sort",
        "tasks/none.py:Sort",
        "tasks/sor\0t.py:Sort",
        "a" * 300,
    ):
        assert installed_task(own) is None and located(own) == own
    other()
    assert located(name) == name
