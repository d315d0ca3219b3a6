"""The styles that are changed as real code differs compute what the styles themselves do, faults included."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.check.grading import described, grade_text, names_of
from tests.check.planted import SILENT, Planted, changed
from tests.check.random_changed import draw_changed
from tests.check.random_right import Drawn, draw
from tests.check.styles.changed import IN_TWO, OFF, RENAMED, SECOND, STYLES
from tests.check.styles.template import Style
from tests.check.test_planted_sources import D, T, build, call, wide


def second_file(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first file import the second one."""
    module = ModuleType(SECOND)
    exec(compile(text, SECOND, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, SECOND, module)


def output(style: Style, source: str) -> Tensor:
    """Call a source with weights that depend on their order alone, not on their names."""
    block, space = build(style, source)
    if isinstance(block, nn.Module):
        with torch.no_grad():
            for n, parameter in enumerate(block.parameters()):
                parameter.copy_(wide(str(n), *parameter.shape))
    elif hasattr(block, "forward"):
        arrays = [name for name, value in vars(block).items() if isinstance(value, np.ndarray)]
        for n, name in enumerate(arrays):
            setattr(block, name, wide(str(n), *getattr(block, name).shape).numpy())
    return call(style, space, torch.randn(2, T, D, generator=torch.Generator().manual_seed(5)))[0]


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("style", [*OFF.values(), *RENAMED.values()], ids=lambda style: style.name)
def test_a_changed_source_computes_the_same(style: Style) -> None:
    plain = STYLES[style.name.rpartition("_")[0]]
    assert same(output(style, style.right()), output(plain, plain.right()))
    for fault in set(style.faults) - SILENT:
        assert same(output(style, style.wrong([fault])[0]), output(plain, plain.wrong([fault])[0])), fault


@pytest.mark.parametrize("name", IN_TWO)
def test_two_files_compute_the_same_as_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two = IN_TWO[name]
    first, second = two.right()
    second_file(second, monkeypatch)
    assert same(output(two.style, first), output(two.style, two.style.right()))
    in_seconds = []
    for fault in two.style.faults:
        whole, at = two.style.wrong([fault])
        first, second, in_second, line = two.wrong([fault])
        in_seconds.append(in_second)
        assert (second if in_second else first).splitlines()[line - 1].strip() == whole.splitlines()[at - 1].strip()
        if fault not in SILENT:
            second_file(second, monkeypatch)
            assert same(output(two.style, first), output(two.style, whole)), fault
    assert any(in_seconds)


def drawn_output(drawn: Drawn) -> Tensor:
    space: dict[str, Any] = {}
    exec(drawn.source, space)
    d_model, n_heads = drawn.sizes["d_model"], drawn.sizes["n_heads"]
    block = space[drawn.entry](d_model, n_heads).eval()
    with torch.no_grad():
        for n, parameter in enumerate(block.parameters()):
            parameter.copy_(wide(str(n), *parameter.shape))
    y = block(wide("x", 2, drawn.sizes["seq_len"], d_model))
    return y["output"] if isinstance(y, dict) else y[0] if isinstance(y, tuple) else y  # type: ignore[no-any-return]


def test_a_change_of_what_was_drawn_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in range(60):
        drawn = draw_changed(seed)
        for text in drawn.beside.values():
            second_file(text, monkeypatch)
        if "flag" not in drawn.says:  # else the mask may be off
            compared += 1
            assert same(drawn_output(drawn), drawn_output(draw(10_000 + seed))), drawn.says
    assert compared > 20


def right_in_two(name: str) -> Planted:
    first, second = IN_TWO[name].right()
    return Planted("", name, first, IN_TWO[name].style.entry, 0, {f"{SECOND}.py": second})


ONES = [Planted("", style.name, style.right(), style.entry, 0) for style in (*OFF.values(), *RENAMED.values())]
RIGHT = [*ONES, *map(right_in_two, IN_TWO)]
QUICK = RIGHT[::7]


def check(planted: Planted, folder: Path) -> None:
    result = grade_text(planted.source, planted.entry, folder, planted.beside)
    assert result.verdict == "right" and not names_of(result), described(result)


@pytest.mark.parametrize("planted", QUICK, ids=lambda planted: planted.style)
def test_a_changed_style_without_a_fault_is_called_right(planted: Planted, tmp_path: Path) -> None:
    check(planted, tmp_path)


def test_all_changed_sources_differ() -> None:
    everything = list(changed())
    assert len({(one.source, *one.beside.values()) for one in everything}) == len(everything) > 800
