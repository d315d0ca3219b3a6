"""The laws of tests/core hold of every form, also of those that the ordinary suite leaves out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mhsa_cli.config.load import load_config
from mhsa_cli.errors import UsageError
from tests.core import test_analytic, test_circuits, test_forms, test_hooks, test_trace
from tests.core.forms import EVERY, FORMS, Form
from tests.core.test_forms import one_thread, short_blocks

__all__ = ["one_thread", "short_blocks"]

LAWS = [
    law
    for module in (test_forms, test_hooks, test_circuits)
    for name, law in vars(module).items()
    if name.startswith("test_") and any(FORMS in mark.args for mark in getattr(law, "pytestmark", ()))
]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__.removeprefix("test_"))
@pytest.mark.parametrize("form", [form for form in EVERY if form not in FORMS], ids=str)
def test_the_law_holds(law: Callable[[Form], None], form: Form) -> None:
    law(form)


@pytest.mark.parametrize("story", [story for story in test_trace.STORIES if story not in test_trace.IN_TURN])
def test_the_story_is_the_models_own(story: tuple[str, str, int, str]) -> None:
    test_trace.test_the_story_is_the_models_own_for_every_form(*story)


@pytest.mark.parametrize("shape", [shape for shape in test_analytic.SHAPES if shape not in test_analytic.IN_TURN])
def test_the_gradient_is_autograds(shape: tuple[str, int, str, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    test_analytic.test_every_gradient_equals_autograds(*shape, monkeypatch)


OPTIONS = {
    "n_heads": [1, 2, 3, 4, 6],
    "d_head": [1, 2, 3, 4, 6],
    "n_kv_heads": [1, 2, 3, 4, 6],
    "d_model": [4, 7, 12],
    "positions": ["rope", "alibi", "learned", "none", "sinusoidal"],
    "rope_layout": ["half", "interleaved"],
    "attention": ["softmax", "softmax", "linear", "uniform"],
    "window": ["null", "null", 1, 3],
    "causal": ["true", "true", "false"],
    "norm": ["none", "layernorm", "rmsnorm"],
    "d_mlp": [0, 1, 9],
    "mlp": ["gelu", "relu", "swiglu"],
    "model.dropout": [0, 0, 0.2],
    "tie_embeddings": ["true", "false"],
    "model.bias": ["true", "false"],
    "residual": ["true", "false"],
    "n_layers": [1, 2],
    "task.seq_len": [2, 5, 9, 27],
    "task.vocab_size": [2, 5, 11],
    "batch_size": [1, 5],
}


@pytest.mark.parametrize("seed", range(8))
def test_drawn_forms_have_autograds_gradient(seed: int) -> None:
    drawn, checked = random.Random(seed), 0
    while checked < 30:
        settings = [f"{key}={drawn.choice(values)}" for key, values in OPTIONS.items()]
        try:
            config = load_config(None, ["task.name=shift", "train.dtype=float64", *settings])
        except UsageError:  # they do not fit together
            continue
        test_analytic.check_against_autograd(config, [4, 9, 2][: drawn.choice([1, 3])])
        checked += 1
