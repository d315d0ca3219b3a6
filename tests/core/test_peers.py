"""The benchmark's other sides do what ours does: the same losses from the same weights on the same batches."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
BLOCK = ["model.d_mlp=48", "model.residual=true", "model.norm=layernorm", "model.positions=learned"]
SCHEDULE = ["train.schedule=cosine", "train.warmup_steps=3", "train.grad_clip=0.5", "train.betas=[0.9,0.95]"]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # which the scripts set
        monkeypatch.setenv(name, "1")
    yield importlib.import_module
    for name in [name for name in sys.modules if name.partition(".")[0] in ("others", "lesson_loop", "forms")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        ("lesson.Lesson", []),
        ("lesson.Module", ["task.vocab_size=11", "task.seq_len=7", "model.d_model=18", "model.n_heads=3"]),
        ("gpt.NanoGPT", [*BLOCK, *SCHEDULE, "task.seq_len=9", "model.n_layers=2", "model.d_model=20"]),
    ],
)
def test_losses_are_the_same(load: Any, place: str, settings: list[str]) -> None:
    turns, (file, name) = load("others.turns"), place.split(".")
    work = turns.Work("a few steps", [*settings, "train.batch_size=13"], 4, 12)
    result = turns.compare(work, name, getattr(load(f"others.{file}"), name))
    assert result.parameters[0] == result.parameters[1]
    assert result.first[1] == pytest.approx(result.first[0], abs=1e-5)
    assert result.last[1] == pytest.approx(result.last[0], abs=2e-4) and result.last[0] < result.first[0]


def test_a_form_of_the_lesson_loop_is_our_form(load: Any) -> None:
    """Of every row, with dropout left out, which each side draws for itself."""
    forms, turns, form = load("forms"), load("others.turns"), load("others.form")
    for name in forms.FORMS:
        settings = dict(text.split("=", 1) for text in forms.settings(name, 13)) | {"model.dropout": "0.0"}
        work = turns.Work(name, [f"{key}={value}" for key, value in settings.items()], 2, 3)
        result = turns.compare(work, name, form.Form)
        near = 1e-2 if name == "bfloat16" else 1e-5
        assert result.parameters[0] == result.parameters[1], name
        assert result.first[1] == pytest.approx(result.first[0], abs=near), name
        assert result.last[1] == pytest.approx(result.last[0], abs=20 * near), name
