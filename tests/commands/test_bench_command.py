"""`mhsa bench`: one document or tables, no run kept, and what it refuses. No speed is asserted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.core.bench import measure, timing
from mhsa_cli.records.bench import ImportSpeed
from tests.commands.shell import mhsa

# A middle size that takes no second a round, and as little effort as there can be.
MIDDLE = {"task": {"seq_len": 6}, "train": {"batch_size": 5}}
EFFORTS = {"quick": measure.Effort(0.0, (1, 3), (8, 12), 1)}


@pytest.fixture(autouse=True)
def little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MIDDLE", MIDDLE)
    monkeypatch.setattr("mhsa_cli.jobs.untrained.EFFORTS", EFFORTS)
    monkeypatch.setattr(timing, "ROUND", 0.0)


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def test_the_quick_document_holds_every_section_and_leaves_nothing_behind(here: Path) -> None:
    before = sorted(here.rglob("*"))
    said = mhsa("bench", "--quick", "--json", "--config", "tiny.yaml")
    assert said.code == 0 and said.err == ""
    found = said.json
    assert list(found) == ["machine", "steps", "stacks", "attention", "import_torch", "not_measured"]
    assert found["steps"][0]["size"] == {
        "batch_size": 7,
        "seq_len": 6,
        "d_model": 12,
        "n_heads": 3,
        "n_layers": 2,
        "d_mlp": 20,
    }
    for name in {step["name"] for step in found["steps"]}:
        assert sum(step["recommended"] for step in found["steps"] if step["name"] == name) == 1
    assert [stack["models"] for stack in found["stacks"]] == [1, 3]
    assert {row["path"] for row in found["attention"]} == {"fused", "linear", "weights"}
    timed = [step["step_ms"] for step in found["steps"] + found["stacks"]] + [row["ms"] for row in found["attention"]]
    for quartiles in [*timed, found["import_torch"]["seconds"]]:
        assert list(quartiles) == ["q25", "median", "q75"]
        assert 0 < quartiles["q25"] <= quartiles["median"] <= quartiles["q75"] < math.inf
    assert all(math.isfinite(value) for value in numbers(found))
    assert sorted(here.rglob("*")) == before


def test_tables_come_without_json() -> None:
    with mock.patch.object(measure, "import_speed", return_value=ImportSpeed((1.0, 1.0, 1.0))):
        said = mhsa("bench", "--quick", "-c", "tiny.yaml", "n_heads=4")
    assert said.code == 0, said.err
    assert "training step" in said.out and "2 blocks of d_model 12, 4 heads, d_mlp 20" in said.out
    assert said.out.rstrip().endswith("import torch: 1.00 s")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.threads=0"], "wanted a whole number"),
        (["n_heads=5"], "not divisible"),
        (["seq_len=65536", "batch_size=4096"], "this config needs about"),
        (["n_head=8"], "did you mean `n_heads`"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["tiny.yaml"], "tiny.yaml"),
        (["--rounds", "5"], "--rounds"),
        (["train.device=cuda:99"], "cuda"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(arguments: list[str], words: str) -> None:
    with mock.patch.object(measure, "measure", side_effect=AssertionError("it began")):
        said = mhsa("bench", *arguments)
    assert (said.code, said.out) == (2, "") and words in said.err
