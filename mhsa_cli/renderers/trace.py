"""The tensor story as a table, what was checked in words, and what the parts weigh."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mhsa_cli.records import Trace, TraceStep
from mhsa_cli.renderers.console import Surface
from mhsa_cli.renderers.lines import Lines, assemble, wrap_phrases
from mhsa_cli.renderers.palette import BOLD, DIM, PLAIN, alarm_style
from mhsa_cli.renderers.table import Column, table


def trace_picture(trace: Trace, *, width: int, surface: Surface) -> Lines:
    """Draw a trace at most `width` columns wide: every tensor of the first layer, the checks, the parts, the cache."""
    blank = Lines([Text()])
    return (
        _heading(trace, width)
        + blank
        + _steps(trace, width, surface)
        + blank
        + _checks(trace, width, surface)
        + blank
        + _parts(trace, width, surface)
        + blank
        + _cache(trace, width)
    )


def _heading(trace: Trace, width: int) -> Lines:
    sizes = "  ".join(f"{name} = {size:,}" for name, size in trace.sizes.items())
    kind = f"{trace.attention} attention, {trace.positions} positions, untrained, seed {trace.seed}"
    return Lines(wrap_phrases([[(trace.task, BOLD)], [(kind, PLAIN)]], width) + wrap_phrases([[(sizes, DIM)]], width))


def _steps(trace: Trace, width: int, surface: Surface) -> Lines:
    columns = [
        Column("part", drop=1),
        Column("tensor"),
        Column("how"),
        Column("shape"),
        Column("data", drop=2),
        Column("mean", "right", drop=5),
        Column("std", "right", drop=3),
        Column("FLOPs", "right", drop=4),
        Column("bytes", "right", drop=6),
        Column("strides", drop=7),
    ]
    rows: list[list[str]] = []
    part = ""
    for step in trace.steps:
        if step.layer is not None and step.layer > 0:
            continue
        if step.part == "head" and trace.n_layers > 1:
            rows.append(["", "", "", f"{_others(trace)}: the same shapes"])
        rows.append([step.part if step.part != part else "", *_row(step)])
        part = step.part
    rows.append(["", "loss", "cross-entropy", f"() = {trace.loss:.4f} nats"])
    return table(columns, rows, width=width, surface=surface)


def _others(trace: Trace) -> str:
    return "layer 1" if trace.n_layers == 2 else f"layers 1..{trace.n_layers - 1}"


def _row(step: TraceStep) -> list[str]:
    shape = f"({', '.join(step.symbols)}) = ({', '.join(map(str, step.shape))})"
    figures = ["" if value is None else f"{value:.3f}" for value in (step.mean, step.std)]
    counts = [_count(step.flops), _count(step.bytes)]
    return [step.name, step.how, shape, step.data, *figures, *counts, ", ".join(map(str, step.strides))]


def _count(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number) if number else ""


def _checks(trace: Trace, width: int, surface: Surface) -> Lines:
    lines: list[Text] = []
    for check in trace.checks:
        figure = "" if check.figure == 0 else f" (off by {check.figure:.1e})"
        mark, style = ("ok  ", DIM) if check.passed else ("FAIL", alarm_style(surface.depth))
        first, *rest = wrap_phrases(
            [[(word, PLAIN)] for word in (check.text + figure).split()], max(20, width - 6), gap=1
        )
        lines.append(assemble([(mark, style), ("  ", PLAIN)]) + first)
        lines += [Text("      ") + line for line in rest]
    return Lines(lines)


def _parts(trace: Trace, width: int, surface: Surface) -> Lines:
    columns = [Column("parameters of"), Column("number", "right")]
    with_gradients = any(part.gradient_norm is not None for part in trace.parts)
    if with_gradients:
        columns.append(Column("gradient norm", "right"))
    rows: list[Sequence[str]] = []
    for part in trace.parts:
        norm = "" if part.gradient_norm is None else f"{part.gradient_norm:.4f}"
        rows.append([part.name, f"{part.parameters:,}", norm])
    rows.append(["attention", f"{trace.attention_parameters:,}"])
    rows.append(["all", f"{trace.parameters:,}"])
    return table(columns, rows, width=width, surface=surface)


def _cache(trace: Trace, width: int) -> Lines:
    cache = trace.cache
    if cache.grows:
        text = f"KV cache of one row: {cache.bytes_per_token:,} bytes a token, "
        text += f"{cache.bytes_at_max:,} at {cache.max_seq_len} tokens"
    else:
        text = f"cache of one row: {cache.bytes_at_max:,} bytes, whatever its length"
    phrases = [[(text, PLAIN)]]
    if cache.bytes_at_max < cache.all_heads_bytes:
        phrases.append([(f"with a KV head for every head: {cache.all_heads_bytes:,}", DIM)])
    return Lines(wrap_phrases(phrases, width))
