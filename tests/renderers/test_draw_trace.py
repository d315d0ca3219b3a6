from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.trace import Trace, TraceCache, TraceCheck, TracePart, TraceStep
from mhsa_cli.renderers.pictures.trace import trace_picture
from tests.renderers.drawn import COLOR, SURFACES, golden, on

SIZES = {"B": 2, "T": 5, "D": 16, "H": 4, "G": 2, "d_head": 4, "V": 64}


def step(
    part: str, layer: int | None, name: str, how: str, symbols: str, *, flops: int = 0, data: str = "new"
) -> TraceStep:
    shape = [SIZES.get(s, 32) for s in symbols.split()]
    strides = [1] * len(shape)
    held = 0 if data == "view" else 12_345
    return TraceStep(
        part, layer, name, how, symbols.split(), shape, data, strides, "float32", flops, held, -0.00004, 1.5
    )


def block(layer: int) -> list[TraceStep]:
    return [
        step("attention", layer, "qkv", "qkv_proj", "B T D+2*G*d_head", flops=10_560),
        step("attention", layer, "q", "split heads", "B H T d_head", data="view"),
        step("attention", layer, "scores", "q @ kT", "B H T T", flops=1_600),
        step("attention", layer, "masked", "mask: -inf", "B H T T", data="copy"),
        step("MLP", layer, "y", "down", "B T D", flops=2_500_000_000),
    ]


IDS = TraceStep("embedding", None, "ids", "the task's", "BT", (2, 5), "input", (5, 1), "int64", 0, 80, None, None)
HEAD = step("head", None, "logits", "lm_head", "B T V", flops=21_120)
TRACE = Trace(
    task="copy",
    attention="softmax",
    positions="rope",
    seed=42,
    n_layers=3,
    sizes=SIZES,
    steps=[IDS, *block(0), *block(1), *block(2), HEAD],
    flops=7_500_057_600,
    bytes=999_960,
    loss=4.0502,
    checks=[
        TraceCheck("shapes", True, 0.0, {"count": 17, "wrong": []}),
        TraceCheck("scaling", True, 0.0, {"divisor": 2.0, "sqrt(d_head)": 2.0, "sqrt(D)": 4.0, "std": (1.5, 0.75)}),
        TraceCheck("causal", False, 0.1),
        TraceCheck("parameters", True, 0.0, {"counted": 2_448, "formula": "2*D*D+2*D*G*d_head", "layers": 3}),
    ],
    parts=[TracePart("token embedding", 1_024, 15.6212), TracePart("q projection", 816, 6e-8)],
    parameters=1_840,
    attention_parameters=816,
    attention_formula="2*D*D+2*D*G*d_head",
    cache=TraceCache(True, 192, 960, 1920, 5),
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_traces_stay_as_they_were(width: int) -> None:
    golden(f"trace-{width}", trace_picture(TRACE, on(width)).plain)


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("width", [20, 33, 60, 80, 120, 200])
def test_a_trace_keeps_within_its_width(width: int, surface: str) -> None:
    lines = trace_picture(TRACE, on(width, surface))
    assert all(line.cell_len <= width and "\n" not in line.plain for line in lines)
    if not surface.startswith("ascii"):
        return
    assert all(line.plain.isascii() for line in lines)


def test_an_indented_table_leaves_room_for_its_indent() -> None:
    assert all(trace_picture(TRACE, on(width)).columns <= width for width in range(38, 131))


def test_what_a_narrow_terminal_leaves_out_is_named() -> None:
    narrow, wide = (trace_picture(TRACE, on(width)).plain for width in (60, 160))
    assert "columns: operation, std, mean, bytes, strides" in narrow and "hidden" not in wide
    for text in (narrow, wide):
        assert "(B, H, T, d_head) = (2, 4, 5, 4)   view" in text and "(B, T, D+2·G·d_head) = (2, 5, 32)" in text


def test_layers_like_the_first_are_told_in_a_line_and_others_in_full() -> None:
    text = trace_picture(TRACE, COLOR).plain
    assert "layers 1..2: same shapes, 5G FLOPs in total" in text and "layer 1:" not in text
    other = [replace(s, data="new") if (s.layer, s.name) == (2, "q") else s for s in TRACE.steps]
    text = trace_picture(replace(TRACE, steps=other), COLOR).plain
    assert "layer 1: same shapes, 2.5G FLOPs\n" in text and "layer 2: attention" in text
    alone = [s for s in TRACE.steps if not s.layer]
    assert "same shapes" not in trace_picture(replace(TRACE, steps=alone, n_layers=1), COLOR).plain


def test_a_failed_check_is_a_word_and_stands_out() -> None:
    lines = trace_picture(TRACE, COLOR)
    line = next(line for line in lines if line.plain.startswith("FAIL"))
    assert line.spans and line.plain.endswith("1.0e-01")


def test_the_cache_says_what_sharing_saves_and_when_it_does_not_grow() -> None:
    assert "n_kv_heads saves 50%: 1,920" in trace_picture(TRACE, COLOR).plain
    fixed = replace(TRACE, cache=TraceCache(False, 0, 1152, 1152, 5))
    text = trace_picture(fixed, COLOR).plain
    assert "1,152 bytes, " in text and "saves" not in text


def test_gradients_are_left_out_where_none_were_made() -> None:
    bare = replace(TRACE, parts=[replace(part, gradient_norm=None) for part in TRACE.parts])
    assert "gradient" not in trace_picture(bare, COLOR).plain


@pytest.mark.parametrize(
    ("number", "short"),
    [
        (9_999, "9,999"),
        (10_000, "10k"),
        (999_499, "999k"),
        (999_960, "1M"),
        (2_359_296, "2.36M"),
        (586 * 10**9, "586G"),
    ],
)
def test_counts_are_short(number: int, short: str) -> None:
    assert f"forward pass: {short} FLOPs" in trace_picture(replace(TRACE, flops=number), COLOR).plain
