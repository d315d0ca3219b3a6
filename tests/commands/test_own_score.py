"""--score FILE.py:name in commands: kept over training, the same where measured later, and run only where named."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.core.heads import random_baseline
from tests.commands.shell import Said, at_step, facts, mhsa

MINE = '''\
from pathlib import Path

import torch

Path("ran").touch()


def before(ids):
    """The token before."""
    B, T = ids.shape
    return torch.ones(B, T, T, dtype=torch.bool).tril(-1).triu(-1)


def sharp(weights, ids):
    """The mean largest weight."""
    weights[:, :, 0] = torch.rand(1)
    return weights[:, :, 1:].amax(-1).mean(-1)
'''
SMALL = ("task.name=copy", "vocab_size=7", "seq_len=6", "d_model=8", "n_heads=2", "epochs=1", "steps_per_epoch=24")
MORE = ("eval_sequences=40", "lr=0.02")
BEFORE, SHARP = ("--score", "mine.py:before"), ("--score", "mine.py:sharp")
BOTH = (*BEFORE, *SHARP)
RUN = Path("runs/own")


@pytest.fixture(scope="module", autouse=True)
def few_untrained_heads() -> Iterator[None]:
    with mock.patch.object(random_baseline, "HEADS", 8), mock.patch.object(random_baseline, "RANDOM_HEADS", 8):
        yield


@pytest.fixture(autouse=True)
def mine(here: Path) -> None:
    (here / "mine.py").write_text(MINE)


def train(*more: str) -> Said:
    return mhsa("train", *SMALL, *MORE, "--name", "own", *more)


def ran() -> bool:
    """Whether the file has run since this was asked last."""
    there = Path("ran").exists()
    Path("ran").unlink(missing_ok=True)
    return there


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RUN / "heads.jsonl").read_text().splitlines()]


def scored(said: Said) -> list[Any]:
    """The scores of each head that a command printed."""
    return [head.get("own_scores") for head in said.json["heads"]]


def test_a_run_keeps_them_and_its_weights_are_those_without() -> None:
    assert train().code == 0
    digest = facts(RUN)["weights_sha256"]
    before = [{**line, "heads": [{**head, "own_scores": 0} for head in line["heads"]]} for line in lines()]
    shutil.rmtree(RUN)
    assert train(*BOTH).code == 0 and ran()
    assert facts(RUN)["weights_sha256"] == digest
    assert [(one["name"], one["form"]) for one in facts(RUN)["own_scores"]] == [
        ("before", "target"),
        ("sharp", "value"),
    ]
    found = lines()
    assert all(set(head["own_scores"]) == {"before", "sharp"} for line in found for head in line["heads"])
    assert all(
        line.pop("own_uniform")["before"] == pytest.approx((1 / 2 + 1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 5)
        for line in found
    )
    assert [{**line, "heads": [{**head, "own_scores": 0} for head in line["heads"]]} for line in found] == before


def test_what_is_kept_is_shown_without_the_file_and_equals_what_is_measured_later() -> None:
    train(*BOTH)
    ran()
    kept = mhsa("explain", "own", "--json")
    assert scored(kept) == scored(mhsa("explain", "own", *BOTH, "--json")) and not ran()
    for command in ("explain", "inspect-heads", "timeline"):
        assert mhsa(command, "own", *BEFORE).code == 0 and not ran(), command
    assert "before" in mhsa("inspect-heads", "own", "--scores").out
    assert mhsa("verify", "own").code == 0 and not ran()
    assert scored(mhsa("explain", "own", "--more", "--json")) == scored(kept)
    assert not ran() and scored(mhsa("explain", "own", "--json")) == scored(kept)
    shutil.rmtree(RUN)
    train()
    assert not ran() and scored(mhsa("explain", "own", "--json")) == [None, None]
    assert scored(mhsa("explain", "own", *BOTH, "--json")) == scored(kept) and ran()
    table = mhsa("inspect-heads", "own", *SHARP, "--heads", "L0.H1", "--json").json["own_scores"]
    assert table == {"sharp": [{"layer": 0, "head": 1, **scored(kept)[1]["sharp"]}]} and ran()


def test_any_step_can_be_scored() -> None:
    train(*BEFORE)
    ran()
    for command in ("inspect-heads", "explain"):
        said = mhsa(command, "own", "--step", "first", *BEFORE, "--json")
        assert said.json["step"] == 0 and ran(), command
    for head in said.json["heads"]:
        one = head["own_scores"]["before"]
        assert one["value"] == pytest.approx(one["uniform"], abs=0.05)


def test_over_training_a_score_is_followed_where_it_is_kept() -> None:
    train(*BOTH)
    found = mhsa("timeline", "own", *BEFORE, "--json").json
    for head in found["heads"]:
        assert head["target"] == "before" and head["claims"] == []
        assert head["lifts"] == pytest.approx(head["scores"]["previous"])
        assert len(head["own_scores"]["sharp"]) == len(found["steps"])
    ours = mhsa("timeline", "own", "--target", "previous", "--json").json["heads"]
    assert [head["onset"] for head in found["heads"]] == [head["onset"] for head in ours]
    values = mhsa("timeline", "own", *SHARP, "--json").json["heads"]
    assert all(head["onset"] is None and head["final"] is not None for head in values)
    assert mhsa("timeline", "own", *SHARP, "--target", "self").code == 2
    shutil.rmtree(RUN)
    train(*BEFORE)
    assert mhsa("timeline", "own", *SHARP).code == 2


def test_a_resumed_run_is_the_unbroken_one_and_needs_its_scores() -> None:
    train(*BOTH)
    shutil.copytree(RUN, "runs/whole")
    whole = lines()
    shutil.rmtree(RUN)
    with at_step(9, lambda: os.kill(os.getpid(), signal.SIGINT)):
        train(*BOTH, "train.save_every=6")
    Path("mine.py").write_text(MINE + "\n# other\n")
    assert mhsa("train", "--resume", "own", *BOTH).code == 4
    Path("mine.py").write_text(MINE)
    assert mhsa("train", "--resume", "own").code == 2
    assert mhsa("train", "--resume", "own", *BEFORE).code == 2
    Path("other.py").write_text(MINE.replace("sharp", "other"))
    assert mhsa("train", "--resume", "own", *BOTH, "--score", "other.py:other").code == 2
    assert mhsa("train", "--resume", "own", *SHARP, *BEFORE).code == 0
    assert facts(RUN)["weights_sha256"] == facts(Path("runs/whole"))["weights_sha256"]
    for one, other in zip(lines(), whole, strict=True):
        for head, wanted in zip(one["heads"], other["heads"], strict=True):
            assert head["own_scores"] == pytest.approx(wanted["own_scores"])


def test_a_changed_file_is_told_and_measured_anew() -> None:
    train(*BEFORE)
    Path("mine.py").write_text(MINE.replace(".tril(-1).triu(-1)", ".tril(-2).triu(-2)"))
    ran()
    told = mhsa("timeline", "own", *BEFORE)
    assert told.code == 0 and "mine.py" in told.err and not ran()
    kept, anew = mhsa("explain", "own", "--json"), mhsa("explain", "own", *BEFORE, "--json")
    assert "mine.py" in anew.err and ran() and scored(anew) != scored(kept)


def test_a_sweep_keeps_them_and_is_resumed() -> None:
    said = mhsa("sweep", *SMALL, *MORE, "n_layers=1,2", "--seeds", "2", "--name", "s", *BOTH, "--json")
    assert said.code == 0
    for group in said.json["groups"]:
        assert [one["name"] for one in group["own_scores"]] == ["before", "sharp"]
    trial = Path("runs/s/n_layers=2_seed=42")
    assert facts(trial)["own_scores"][1]["name"] == "sharp"
    heads = json.loads((trial / "heads.json").read_text())["heads"]
    values = [head["own_scores"]["before"]["value"] for head in heads]
    entry = facts(trial)["sweep"]["own_scores"]["before"]
    assert len(values) == 4 and (entry["smallest"], entry["largest"]) == (min(values), max(values))
    for run in said.json["runs"]:
        assert run["own_scores"]["before"]["smallest"] <= run["own_scores"]["before"]["largest"]
    assert "sharp" in mhsa("sweep", "show", "s").out
    shutil.rmtree(trial)
    assert mhsa("sweep", "--resume", "s").code == 2
    again = mhsa("sweep", "--resume", "s", *BOTH, "--json")
    assert again.json["groups"] == said.json["groups"]
    shutil.rmtree(trial)
    Path("mine.py").write_text(MINE + "\n# other\n")
    assert mhsa("sweep", "--resume", "s", *BOTH).code == 4


def test_a_trial_has_the_figures_of_the_run_alone() -> None:
    mhsa("sweep", *SMALL, *MORE, "--seeds", "2", "--name", "s", *BOTH)
    train(*BOTH)
    alone, trial = (mhsa("explain", name, "--json") for name in ("own", "s/seed=42"))
    for one, other in zip(scored(alone), scored(trial), strict=True):
        assert one["before"] == pytest.approx(other["before"]) and one["sharp"] == pytest.approx(other["sharp"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dtype=torch.bool", "dtype=torch.int64"),
        (".tril(-1).triu(-1)", ".triu(1)"),
        ("B, T, T, dtype", "T, T, dtype"),
        ("def before(ids)", "def before(x)"),
        ("    B, T = ids.shape", "    raise KeyError(3)"),
        ("import torch\n", "import torch, no_such_package\n"),
    ],
)
def test_a_wrong_score_is_refused_before_anything_is_written(old: str, new: str) -> None:
    assert old in MINE
    Path("mine.py").write_text(MINE.replace(old, new))
    assert train(*BEFORE).code == 2 and not Path("runs").exists()
    assert mhsa("sweep", *SMALL, *BEFORE).code == 2 and not list(Path("runs").iterdir())


@pytest.mark.parametrize("name", ["mine.py", "mine.py:", "mine.txt:before", "none.py:before", "mine.py:none"])
def test_a_wrong_name_is_refused(name: str) -> None:
    assert train("--score", name).code == 2 and not Path("runs").exists()


def test_two_scores_of_one_name_are_refused() -> None:
    shutil.copy("mine.py", "other.py")
    assert train(*BEFORE, "--score", "other.py:before").code == 2 and not ran()
