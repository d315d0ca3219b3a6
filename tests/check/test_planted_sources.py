"""The planted sources themselves: each runs, and does what its fault says rather than what is right."""

from __future__ import annotations

import ast
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.check.planted import FRAMED, SILENT, STYLES, Planted, framed, pairs, sources
from tests.check.styles.template import Style

D, H, T, B = 32, 4, 7, 2
PLANTED = [*sources(), *pairs(), *framed()]
ALL_STYLES = {**STYLES, **FRAMED}


def of_style(name: str, silent: bool) -> list[Planted]:
    """List what is planted in a style: what shows in no single output, or all else."""
    return [one for one in PLANTED if one.style == name and bool(set(one.faults) & SILENT) is silent]


def wide(name: str, *shape: int) -> Tensor:
    """Draw N(0, 0.3^2) numbers that depend on the name only: what right and wrong call alike is alike."""
    return 0.3 * torch.randn(*shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))


def build(style: Style, source: str, **sizes: int) -> tuple[Any, dict[str, Any]]:
    """Make what a source defines, with wide weights; returns it and the names it lives among."""
    space: dict[str, Any] = {"D": D, "H": H, "T": T, "torch": torch, **sizes}
    exec(compile(source, style.name, "exec"), space)
    block = eval(style.make, space)
    if isinstance(block, nn.Module):
        block.eval()
        with torch.no_grad():
            for name, parameter in block.named_parameters():
                parameter.copy_(wide(name, *parameter.shape))
    elif not callable(block) or hasattr(block, "forward"):
        for name, value in vars(block).items():
            if isinstance(value, np.ndarray):
                setattr(block, name, wide(name, *value.shape).numpy())
    space["block"] = block
    return block, space


def call(style: Style, space: dict[str, Any], x: Tensor) -> tuple[Tensor, Any]:
    """Call it as its style is called; returns the output and what else it returned."""
    keep = torch.ones(T, T, dtype=torch.bool).tril()
    inputs: dict[str, Any] = {"x": x, "keep": keep, "W": [wide(f"W{i}", D, D) for i in range(4)]}
    if style.numpy:
        inputs = {"x": x.numpy(), "keep": keep.numpy(), "W": [w.numpy() for w in inputs["W"]]}
    with torch.no_grad():
        raw = eval(style.call, {**space, **inputs})
    y, rest = raw if isinstance(raw, tuple) else (raw, None)
    return torch.as_tensor(y).clone(), rest


def run(style: Style, source: str, x: Tensor) -> Tensor:
    return call(style, build(style, source)[1], x)[0]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, D, generator=torch.Generator().manual_seed(5))


def test_every_fault_is_planted_in_three_styles() -> None:
    counts = Counter(planted.fault for planted in sources())
    assert len(counts) >= 36
    assert {fault: n for fault, n in counts.items() if n < 3} == {}
    assert len(list(pairs())) >= 20 and len(list(framed())) >= 6


@pytest.mark.parametrize("name", ALL_STYLES)
def test_the_right_source_runs_and_is_causal(name: str, x: Tensor) -> None:
    style = ALL_STYLES[name]
    y = run(style, style.right(), x.clone())
    later = x.clone()
    later[:, -1] += 1
    rebuild = run(style, style.right(), later)
    assert y.shape == (B, T, D)
    assert torch.equal(y, run(style, style.right(), x.clone()))
    assert torch.allclose(y[:, :-1], rebuild[:, :-1]) and not torch.allclose(y[:, -1], rebuild[:, -1])


@pytest.mark.parametrize("name", ALL_STYLES)
def test_a_planted_fault_changes_the_output(name: str, x: Tensor) -> None:
    style = ALL_STYLES[name]
    right = run(style, style.right(), x.clone())
    for planted in of_style(name, silent=False):
        wrong = run(style, planted.source, x.clone())
        if planted.fault == "output_transposed":
            assert wrong.shape == (B, D, T)
            continue
        assert wrong.shape == right.shape, planted.fault
        assert not (wrong - right).abs().max() <= 1e-3, planted.fault  # a NaN differs, too


@pytest.mark.parametrize("name", ALL_STYLES)
def test_a_silent_fault_shows_elsewhere(name: str, x: Tensor) -> None:
    style = ALL_STYLES[name]
    for planted in of_style(name, silent=True):
        for source, wanted in ((style.right(), False), (planted.source, True)):
            assert SHOWS[planted.fault](style, source, x.clone()) is wanted, planted.fault


@pytest.mark.parametrize("name", ALL_STYLES)
def test_the_line_of_a_fault_is_one_that_the_right_source_lacks(name: str) -> None:
    right = ALL_STYLES[name].right().splitlines()
    for planted in of_style(name, silent=False) + of_style(name, silent=True):
        ast.parse(planted.source)
        lines = planted.source.splitlines()
        assert 1 <= planted.line <= len(lines), planted.fault
        assert "#:" not in planted.source and "#!" not in planted.source, planted.fault
        if len(lines) >= len(right):  # else lines were removed, and it is the place of one of them
            assert lines[planted.line - 1] not in right, planted.fault


def test_every_style_is_known() -> None:
    assert {one.style for one in PLANTED} <= set(ALL_STYLES)


def differs(style: Style, source: str, x: Tensor) -> bool:
    """Tell whether it answers otherwise after a call with another input."""
    _, space = build(style, source)
    before = call(style, space, x.clone())[0]
    call(style, space, x.flip(1) + 1)
    return not torch.equal(before, call(style, space, x.clone())[0])


def changes_input(style: Style, source: str, x: Tensor) -> bool:
    before = x.clone()
    run(style, source, x)
    return not torch.equal(x, before)


def mask_raises(style: Style, source: str, x: Tensor) -> bool:
    try:
        run(style, source, x)
    except (ValueError, RuntimeError, AttributeError):
        return True
    return False


def accepts_a_width_that_does_not_divide(style: Style, source: str, x: Tensor) -> bool:
    try:
        _, space = build(style, source, D=30)
    except (ValueError, AssertionError):
        return False
    return call(style, space, x[..., :30].clone())[0].shape == (B, T, 28)


def has_a_loose_mask(style: Style, source: str, x: Tensor) -> bool:
    block, _ = build(style, source)
    return any(isinstance(v, Tensor) and v.size(0) == v.size(1) for m in block.modules() for v in vars(m).values())


def has_an_idle_parameter(style: Style, source: str, x: Tensor) -> bool:
    block, space = build(style, source)
    keep = torch.ones(T, T, dtype=torch.bool).tril()
    raw = eval(style.call, {**space, "x": x, "keep": keep})
    (raw[0] if isinstance(raw, tuple) else raw).pow(2).sum().backward()
    return any(p.grad is None for p in block.parameters())


def lacks_parameters(style: Style, source: str, x: Tensor) -> bool:
    right, wrong = build(style, style.right())[0], build(style, source)[0]
    return len(list(wrong.parameters())) < len(list(right.parameters()))


def given_weights(style: Style, space: dict[str, Any], x: Tensor) -> Tensor:
    call_it = style.call if style.name != "fused" else "block(x, return_weights=True)"
    keep, W = torch.ones(T, T, dtype=torch.bool).tril(), [wide(f"W{i}", D, D) for i in range(4)]
    given = {"x": x.numpy(), "W": [w.numpy() for w in W]} if style.numpy else {"x": x, "keep": keep}
    with torch.no_grad():
        return torch.as_tensor(eval(call_it, {**space, **given})[1]).double()


def drop(block: nn.Module) -> None:
    """Train with half of what passes a dropout dropped."""
    for module in block.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    block.train()


def returns_dropped_weights(style: Style, source: str, x: Tensor) -> bool:
    block, space = build(style, source)
    drop(block)
    sums = given_weights(style, space, x).sum(-1)
    return not torch.allclose(sums, torch.ones_like(sums))


def returns_other_weights(style: Style, source: str, x: Tensor) -> bool:
    right = given_weights(style, build(style, style.right())[1], x)
    return not torch.allclose(given_weights(style, build(style, source)[1], x), right)


def drops_scores(style: Style, source: str, x: Tensor) -> bool:
    """Tell whether in training the output is not finite, or the first token's goes with the last token."""
    block, space = build(style, source)
    drop(block)
    outputs = []
    for given in (x, torch.cat((x[:, :-1], x[:, -1:] + 9), dim=1)):
        torch.manual_seed(1)
        outputs.append(call(style, space, given)[0][:, :-1])
    return not bool(torch.cat(outputs).isfinite().all()) or not torch.allclose(*outputs)


SHOWS = {
    "dropout_in_eval": differs,
    "dropout_on_scores": drops_scores,
    "projections_created_in_forward": differs,
    "state_between_calls": differs,
    "input_changed_in_place": changes_input,
    "mask_argument_raises": mask_raises,
    "heads_not_dividing": accepts_a_width_that_does_not_divide,
    "mask_not_a_buffer": has_a_loose_mask,
    "parameter_unused": has_an_idle_parameter,
    "parameters_not_registered": lacks_parameters,
    "weights_after_dropout": returns_dropped_weights,
    "weights_not_used": returns_other_weights,
}
