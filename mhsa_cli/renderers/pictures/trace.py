"""A trace: every tensor in a table, the checks, the parameters of the parts, and the cache."""

from __future__ import annotations

from itertools import groupby

from rich.text import Text

from mhsa_cli.records.trace import Trace, TracePart, TraceStep
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import Glyphs
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, assemble, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents, with_unit
from mhsa_cli.renderers.pictures.trace_words import check_phrases
from mhsa_cli.text import escape, plural


def trace_picture(trace: Trace, surface: Surface) -> Lines:
    """Draw a trace: every tensor of the first layer, the checks, the parts, the cache."""
    parts = (_heading, _steps, _checks, _parts, _cache)
    return stacked(part(trace, surface) for part in parts)


def _heading(trace: Trace, surface: Surface) -> Lines:
    facts = (
        [(trace.task, BOLD)],
        f"{plural(trace.n_layers, 'layer')}, {trace.attention} attention",
        f"{trace.positions} positions",
        f"seed {trace.seed}, untrained" if trace.init is None else f"weights of {escape(trace.init)}",
    )
    sizes = [f"{name} = {size:,}" for name, size in trace.sizes.items()]
    return wrap_phrases(facts, surface.width) + wrap_phrases(sizes, surface.width, DIM)


def _steps(trace: Trace, surface: Surface) -> Lines:
    """Draw every step under the name of its part; layers equal to the first are summed up in a line."""
    steps = [step for step in trace.steps if not step.layer or not _like_first(trace, step.layer)]
    loss = f"() = {fixed(trace.loss, 4)} nats"
    masked = "masked: mean and std over unmasked entries" if any(step.name == "masked" for step in steps) else ""
    # A narrow terminal hides strides first, then bytes, ... The record None is the loss.
    columns: list[Column[TraceStep | None]] = [
        Column("tensor", lambda s: s.name if s else "loss"),
        Column("operation", lambda s: s.how if s else "cross-entropy", drop=4),
        Column("shape", lambda s: _shape(s, surface.glyphs) if s else loss),
        Column("data", lambda s: s.data if s else "", drop=1, legend=DATA),
        Column("FLOPs", lambda s: with_unit(s.flops) if s and s.flops else "", "right", drop=3),
        Column("std", lambda s: _figure(s.std) if s else "", "right", drop=5, legend=masked),
        Column("mean", lambda s: _figure(s.mean) if s else "", "right", drop=6),
        Column("bytes", lambda s: with_unit(s.bytes) if s and s.bytes else "", "right", drop=7),
        Column("strides", lambda s: f"({', '.join(map(str, s.strides))})" if s else "", drop=8, dim=True),
    ]
    indent = "  " if surface.width >= 40 else ""
    notes = ["a multiply-add is 2 FLOPs"]
    head, *body = (
        Text(indent) + line for line in table(columns, [*steps, None], surface.narrow(len(indent)), notes=notes)
    )
    lines = Lines([head])
    for (layer, part), group in groupby(steps, lambda step: (step.layer, step.part)):
        if part == "head" and trace.n_layers > 1:
            lines += wrap_phrases([_others(trace)], surface.width, BOLD)
        lines.append(Text.styled(part if layer is None else f"layer {layer}: {part}", BOLD))
        for _ in group:
            lines.append(body.pop(0))
    total = f"forward pass: {with_unit(trace.flops)} FLOPs, {with_unit(trace.bytes)} bytes of tensors"
    return lines + body + wrap_phrases([total], surface.width)


DATA = "view: shares the memory of its input\ncopy: the same numbers in a new layout\nnew: computed"


def _signature(trace: Trace, layer: int) -> list[tuple[object, ...]]:
    steps = (step for step in trace.steps if step.layer == layer)
    return [(s.part, s.name, s.how, tuple(s.symbols), tuple(s.shape), s.data, tuple(s.strides)) for s in steps]


def _like_first(trace: Trace, layer: int) -> bool:
    return _signature(trace, layer) == _signature(trace, 0)


def _others(trace: Trace) -> str:
    """Sum up the layers that are not drawn because they equal the first."""
    alike = [layer for layer in range(1, trace.n_layers) if _like_first(trace, layer)]
    if not alike:
        return "no other layer equals the first"
    flops = sum(step.flops for step in trace.steps if step.layer in alike)
    names = f"layer {alike[0]}" if len(alike) == 1 else f"layers {alike[0]}..{alike[-1]}"
    return f"{names}: same shapes, {with_unit(flops)} FLOPs" + ("" if len(alike) == 1 else " in total")


def _shape(step: TraceStep, glyphs: Glyphs) -> str:
    symbols = ", ".join(_times(symbol, glyphs) for symbol in step.symbols)
    return f"({symbols}) = ({', '.join(map(str, step.shape))})"


def _times(formula: str, glyphs: Glyphs) -> str:
    """Write a formula's products with mathematical signs, where the stream has them."""
    return formula.replace("D*D", "D²").replace("*", "·") if glyphs.name == "full" else formula


def _figure(value: float | None, decimals: int = 3, below: int = 1000) -> str:
    if value is None:
        return ""
    return f"{value:.{decimals}f}" if value == 0 or 0.0005 <= abs(value) < below else f"{value:.1e}"


def _checks(trace: Trace, surface: Surface) -> Lines:
    lines = Lines()
    for check in trace.checks:
        mark, style = ("PASS", DIM) if check.passed else ("FAIL", alarm_style(surface.depth))
        phrases = [_times(phrase, surface.glyphs) for phrase in check_phrases(check)]
        weight = PLAIN if check.passed else BOLD
        first, *rest = wrap_phrases(phrases, max(14, surface.width - 6), weight, gap=1)
        lines.append(assemble([(mark, style), ("  ", PLAIN)]) + first)
        lines += [Text("      ") + line for line in rest]
    return lines


def _parts(trace: Trace, surface: Surface) -> Lines:
    trained = any(part.gradient_norm is not None for part in trace.parts)
    columns: list[Column[TracePart]] = [
        Column("part", lambda part: part.name),
        Column("parameters", lambda part: f"{part.parameters:,}", "right"),
        Column("gradient norm", lambda part: _figure(part.gradient_norm, 4, 10_000), "right", drop=1, when=trained),
    ]
    sums = [TracePart("all", trace.parameters, None), TracePart("attention", trace.attention_parameters, None)]
    return table(columns, [*trace.parts, *sums], surface)


def _cache(trace: Trace, surface: Surface) -> Lines:
    cache = trace.cache
    if cache is None:
        return wrap_phrases(["no KV cache: without a causal mask, new tokens change earlier ones"], surface.width)
    if not cache.grows:
        text = f"cache per row: {cache.bytes_at_max:,} bytes, for any number of tokens"
        return wrap_phrases([text], surface.width)
    phrases = [f"KV cache per row: {cache.bytes_per_token:,} bytes per token"]
    phrases.append(f"{cache.bytes_at_max:,} at max_seq_len = {cache.max_seq_len:,}")
    if cache.bytes_at_max < cache.all_heads_bytes:
        saved = percents(1 - cache.bytes_at_max / cache.all_heads_bytes, 0)
        phrases.append(f"n_kv_heads saves {saved}: {cache.all_heads_bytes:,} with n_kv_heads = n_heads")
    return wrap_phrases(phrases, surface.width)
