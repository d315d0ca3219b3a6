"""The laws of tests/core hold of every form, also of those that the ordinary suite leaves out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
