"""Grades from Python: of a file as `mhsa check` gives them, of objects here, which stay as they are."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mhsa_cli as mhsa
from mhsa_cli.check.confirm import answer
from mhsa_cli.check.match import search
from mhsa_cli.jobs.grade import here
from mhsa_cli.records.check import IN_PROCESS, Grade
from tests.api import blocks

FILE = Path(blocks.__file__)
FAULT = next(number for number, line in enumerate(FILE.read_text().splitlines(), 1) if "# the fault" in line)


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 300)


def test_an_object_is_graded_as_its_file_is() -> None:
    of_file, of_class, of_module = (
        mhsa.grade(f"{FILE}:Wrong"),
        mhsa.grade(blocks.Wrong),
        mhsa.grade(blocks.Wrong(24, 4)),
    )
    for grade in (of_file, of_class, of_module):
        assert isinstance(grade, Grade) and grade.verdict == "wrong"
        assert [(fault.id, fault.line) for fault in grade.faults] == [("scale_d_model", FAULT)]
    assert [note.kind for note in of_class.notes] == [note.kind for note in of_module.notes] == [IN_PROCESS]
    assert IN_PROCESS not in [note.kind for note in of_file.notes]
    laws = [{law.id: law.passed for law in grade.laws} for grade in (of_file, of_class)]
    assert laws[0] == laws[1]
    assert repr(of_class) == "<grade: wrong (scale_d_model), Wrong>" and "mhsa check" not in str(of_class)


def test_a_graded_object_and_the_program_stay_as_they_are() -> None:
    module = blocks.Right(24, 4).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(3)
    wanted = torch.rand(2), np.random.rand(2), random.random()
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(3)
    threads, traced = torch.get_num_threads(), sys.gettrace()
    assert mhsa.grade(module).passed
    assert (torch.get_num_threads(), sys.gettrace()) == (threads, traced)
    found = torch.rand(2), np.random.rand(2), random.random()
    assert torch.equal(found[0], wanted[0]) and np.array_equal(found[1], wanted[1]) and found[2] == wanted[2]
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_sizes_that_a_grade_sets_in_globals_are_set_back() -> None:
    grade = mhsa.grade(blocks.Global)
    assert grade.passed, str(grade)
    assert (blocks.n_embd, blocks.config) == (40, {"n_heads": 8, "dropout": None})


def test_a_right_object_is_tried_with_fresh_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of another seed is none: with weights that were known before, it says nothing."""
    monkeypatch.setattr(here, "answer", lambda c, claimed, seed: answer(c, claimed, seed + 1))
    grade = mhsa.grade(blocks.Right)
    assert (grade.verdict, grade.failure) == ("uncallable", "unconfirmed")


def test_what_cannot_be_graded_says_so(tmp_path: Path) -> None:
    assert mhsa.grade(len).verdict in ("uncallable", "unclear")
    for block in ("missing.py:A", f"{FILE}:Nothing", str(tmp_path)):
        with pytest.raises(mhsa.MhsaError) as raised:
            mhsa.grade(block)
        assert raised.value.exit_code == 2
    for wrong in ({"order": "qkk"}, {"rope": "full"}):
        with pytest.raises(mhsa.MhsaError):
            mhsa.grade(blocks.Right, **wrong)


def test_code_without_a_source_is_graded_without_places() -> None:
    namespace: dict[str, object] = {"Right": blocks.Right}
    text = FILE.read_text().partition("class Wrong")[2].partition("class Global")[0]
    exec(compile(f"import math, torch\nfrom torch import Tensor\nclass Wrong{text}", "<typed>", "exec"), namespace)
    grade = mhsa.grade(namespace["Wrong"])  # type: ignore[arg-type]
    assert grade.verdict == "wrong" and [(fault.id, fault.line) for fault in grade.faults] == [("scale_d_model", None)]
    assert "no_source" in [note.kind for note in grade.notes]
