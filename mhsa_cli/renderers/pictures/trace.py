"""The tensor story as a table, what was checked in words, and what the parts weigh."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from mhsa_cli.records import Trace, TraceStep
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import Glyphs
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import Column, legend, table
from mhsa_cli.renderers.kit.text_lines import Lines, assemble, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import escape, plural

# What a narrow terminal loses first stands last: strides, then bytes, ...
COLUMNS = [
    Column("tensor"),
    Column("how", drop=4),
    Column("shape"),
    Column("data", drop=1),
    Column("FLOPs", "right", drop=3),
    Column("std", "right", drop=5),
    Column("mean", "right", drop=6),
    Column("bytes", "right", drop=7),
    Column("strides", drop=8, dim=True),
]
LEGEND = (
    ("data", "view: its input's memory, seen in another way"),
    ("data", "copy: the same numbers laid out anew"),
    ("data", "new: computed"),
    ("", "a multiply and an add are 2 FLOPs"),
)
OF_MASKED = ("std", "masked: mean and std of what stays visible")


def trace_picture(trace: Trace, surface: Surface) -> Lines:
    """Draw a trace: every tensor of the first layer, the checks, the parts, the cache."""
    blank = Lines([Text()])
    return (
        _heading(trace, surface.width)
        + blank
        + _steps(trace, surface)
        + blank
        + _checks(trace, surface)
        + blank
        + _parts(trace, surface)
        + blank
        + _cache(trace, surface.width)
    )


def _heading(trace: Trace, width: int) -> Lines:
    facts = (
        f"{plural(trace.n_layers, 'layer')}, {trace.attention} attention",
        f"{trace.positions} positions",
        f"seed {trace.seed}, untrained",
    )
    sizes = [[(f"{name} = {size:,}", DIM)] for name, size in trace.sizes.items()]
    first = [[(escape(trace.task), BOLD)], *([(fact, PLAIN)] for fact in facts)]
    return Lines(wrap_phrases(first, width) + wrap_phrases(sizes, width))


def _steps(trace: Trace, surface: Surface) -> Lines:
    """Set every step under the name of its part; a layer that is like the first is told in a line."""
    told = [step for step in trace.steps if not step.layer or not _like_first(trace, step.layer)]
    rows = [_row(step, surface.glyphs) for step in told]
    rows.append(["loss", "cross-entropy", f"() = {fixed(trace.loss, 4)} nats"])
    indent = "  " if surface.width >= 40 else ""
    inner = surface.narrow(len(indent))
    head, *body = (Text(indent) + line for line in table(COLUMNS, rows, inner))
    lines = [head]
    for (layer, part), steps in groupby(told, lambda step: (step.layer, step.part)):
        if part == "head" and trace.n_layers > 1:
            lines += wrap_phrases([[(_others(trace), BOLD)]], surface.width)
        lines.append(assemble([(part if layer is None else f"layer {layer}: {part}", BOLD)]))
        for _ in steps:
            lines.append(body.pop(0))
    total = f"forward pass: {_count(trace.flops)} FLOPs, {_count(trace.bytes)} bytes of tensors"
    said = (*LEGEND, OF_MASKED) if any(step.name == "masked" for step in told) else LEGEND
    notes = legend(COLUMNS, rows, said, inner)
    return Lines([*lines, *body, *wrap_phrases([[(total, PLAIN)]], surface.width), *notes])


def _signature(trace: Trace, layer: int) -> list[tuple[object, ...]]:
    steps = (step for step in trace.steps if step.layer == layer)
    return [(s.part, s.name, s.how, tuple(s.symbols), tuple(s.shape), s.data, tuple(s.strides)) for s in steps]


def _like_first(trace: Trace, layer: int) -> bool:
    return _signature(trace, layer) == _signature(trace, 0)


def _others(trace: Trace) -> str:
    """Sum up the layers that are not told because they are like the first."""
    alike = [layer for layer in range(1, trace.n_layers) if _like_first(trace, layer)]
    if not alike:
        return "no other layer is like the first"
    flops = sum(step.flops for step in trace.steps if step.layer in alike)
    names = f"layer {alike[0]}" if len(alike) == 1 else f"layers {alike[0]}..{alike[-1]}"
    return f"{names}: the same shapes, {_count(flops)} FLOPs" + ("" if len(alike) == 1 else " together")


def _row(step: TraceStep, glyphs: Glyphs) -> list[str]:
    symbols = ", ".join(_times(symbol, glyphs) for symbol in step.symbols)
    shape = f"({symbols}) = ({', '.join(map(str, step.shape))})"
    strides = f"({', '.join(map(str, step.strides))})"
    counts = [_count(step.flops) if step.flops else "", _count(step.bytes) if step.bytes else ""]
    return [step.name, step.how, shape, step.data, counts[0], _value(step.std), _value(step.mean), counts[1], strides]


def _times(formula: str, glyphs: Glyphs) -> str:
    """Write a formula's products as in a book, where there are signs for it."""
    return formula.replace("D*D", "D²").replace("*", "·") if glyphs.name == "full" else formula


def _value(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 1000 and (value == 0 or abs(value) >= 0.0005) else f"{value:.1e}"


def _count(number: int) -> str:
    if number < 10_000:
        return f"{number:,}"
    units = iter("kMGTPE")
    value, unit = number / 1000, next(units)
    while value >= 999.5:  # what would be rounded to 1000 is one of the next unit
        value, unit = value / 1000, next(units)
    return f"{value:.3g}{unit}"


def _checks(trace: Trace, surface: Surface) -> Lines:
    lines: list[Text] = []
    for check in trace.checks:
        mark, style = ("PASS", DIM) if check.passed else ("FAIL", alarm_style(surface.depth))
        claim, colon, more = _times(escape(check.text), surface.glyphs).partition(": ")
        weight = PLAIN if check.passed else BOLD
        phrases = [[(claim + colon.strip(), weight)], *([[(more, weight)]] if more else [])]
        first, *rest = wrap_phrases(phrases, max(14, surface.width - 6), gap=1)
        lines.append(assemble([(mark, style), ("  ", PLAIN)]) + first)
        lines += [Text("      ") + line for line in rest]
    return Lines(lines)


def _parts(trace: Trace, surface: Surface) -> Lines:
    columns = [Column("parameters of"), Column("number", "right")]
    if any(part.gradient_norm is not None for part in trace.parts):
        columns.append(Column("gradient norm", "right", drop=1))
    rows: list[Sequence[str]] = []
    for part in trace.parts:
        rows.append([part.name, f"{part.parameters:,}", _norm(part.gradient_norm)])
    rows += [["all", f"{trace.parameters:,}"], ["attention alone", f"{trace.attention_parameters:,}"]]
    return table(columns, rows, surface)


def _norm(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 0.0005 <= value < 10_000 else f"{value:.1e}"


def _cache(trace: Trace, width: int) -> Lines:
    cache = trace.cache
    if not cache.grows:
        text = f"cache of one row: {cache.bytes_at_max:,} bytes, however many tokens it has read"
        return Lines(wrap_phrases([[(text, PLAIN)]], width))
    text = f"KV cache of one row: {cache.bytes_per_token:,} bytes a token"
    phrases = [[(text, PLAIN)], [(f"{cache.bytes_at_max:,} at max_seq_len = {cache.max_seq_len:,}", PLAIN)]]
    if cache.bytes_at_max < cache.all_heads_bytes:
        saved = 1 - cache.bytes_at_max / cache.all_heads_bytes
        phrases.append(
            [(f"n_kv_heads saves {percents(saved, 0)}: with as many as heads it is {cache.all_heads_bytes:,}", PLAIN)]
        )
    return Lines(wrap_phrases(phrases, width))
