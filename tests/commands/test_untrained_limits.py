"""Untrained heads are drawn once in a process for each task and shape, and only where heads are labelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.core.heads.random_baseline import Limits, null_limits
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.jobs import untrained_limits
from tests.commands.shell import mhsa

QUICK = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "epochs=1", "steps_per_epoch=80"]


@pytest.fixture
def drawn() -> Iterator[list[int]]:
    """The numbers of heads of the models for which they were drawn."""
    calls: list[int] = []

    def counted(model: TransformerLM, task: Task) -> Limits:
        calls.append(len(model.heads))
        return null_limits(model, task)

    with mock.patch.object(untrained_limits, "null_limits", counted), mock.patch.object(untrained_limits, "_kept", {}):
        yield calls


def nulls(run: Path) -> list[object]:
    heads = json.loads((run / "heads.json").read_text())["heads"]
    scores = [score for head in heads for score in head["scores"].values() if isinstance(score, dict)]
    return [score["null"] for score in scores]


def test_they_are_drawn_once_for_every_shape_of_a_sweep(drawn: list[int]) -> None:
    assert mhsa("sweep", *QUICK, "lr=1e-2,2e-2", "n_heads=2,4", "--seeds", 2, "--name", "all").code == 0
    assert drawn == [2, 4]  # for eight runs of four settings
    assert mhsa("train", *QUICK, "lr=2e-2", "n_heads=4", "--name", "alone").code == 0
    found = nulls(Path("runs/alone"))
    assert drawn == [2, 4] and None not in found
    assert nulls(Path("runs/all/lr=2e-2_n_heads=4_seed=42")) == found
    assert mhsa("train", *QUICK, "lr=2e-2", "n_heads=4", "dtype=float64").code == 0
    assert mhsa("train", *QUICK, "lr=2e-2", "n_heads=4", "separator=false").code == 0
    assert drawn == [2, 4, 4, 4]


def test_they_are_not_drawn_where_no_head_is_labelled(drawn: list[int]) -> None:
    assert mhsa("sweep", *QUICK, "attention=uniform", "--seeds", 2).code == 0
    assert drawn == []
