"""What `mhsa bench` measured, as tables: one section after another, each as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mhsa_cli.records import (
    AttentionSpeed,
    BenchRecord,
    ImportSpeed,
    Machine,
    NotMeasured,
    Spread,
    StackSpeed,
    StepSpeed,
)
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.table import COLUMN_GAP, Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_phrases
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.text import escape, plural

QUARTILES_FROM = 72  # columns; below, times are medians alone


def bench_section(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    """Draw the records of one section: a heading, a table, what its columns mean, and what was left out."""
    measured = [record for record in records if not isinstance(record, NotMeasured)]
    lines = SECTIONS[records[0].section](measured, surface)
    left_out = [f"not measured: {r.what} ({r.why})" for r in records if isinstance(r, NotMeasured)]
    return lines + Lines(wrap_phrases([[(escape(text), DIM)] for text in left_out], surface.width))


def _machine(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    phrases = []
    for r in records:
        assert isinstance(r, Machine)
        device = r.device if r.gpu is None else f"{r.device} ({r.gpu})"
        threads = f"train.threads={r.threads}"
        phrases += [f"{r.cpu}, {plural(r.cores, 'core')}", f"device {device}", f"torch {r.torch}", threads]
    return Lines(wrap_phrases([[(escape(phrase), PLAIN)] for phrase in phrases], surface.width))


def _steps(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    rows = [r for r in records if isinstance(r, StepSpeed)]
    columns = [Column("size", flexible=True), Column("threads", "right"), Column("ms a step", "right")]
    columns += [Column("steps/s", "right", drop=1), Column("tokens/s", "right", drop=2)]
    cells = []
    for r in rows:
        times = spread_text(r.step_ms, surface)
        cells.append([r.name, str(r.threads), times, rate(r.steps_per_second), rate(r.tokens_per_second)])
    notes = list(dict.fromkeys(_size(r) for r in rows))
    if len({r.threads for r in rows}) > 1:
        chosen = ", ".join(f"{r.threads} for {r.name}" for r in rows if r.recommended)
        notes.append(f"train.threads to choose, with this machine as busy as it is now: {chosen}")
    return _titled("training step", columns, cells, [_times(surface.width), *notes], surface)


def _size(r: StepSpeed) -> str:
    mlp = f", d_mlp {r.size['d_mlp']}" if r.size["d_mlp"] else ""
    rows = f"{plural(r.size['batch_size'], 'row')} of {plural(r.size['seq_len'], 'token')}"
    block = f"{plural(r.size['n_layers'], 'block')} of d_model {r.size['d_model']}, {plural(r.size['n_heads'], 'head')}"
    return f"{r.name}: {rows}, {block}{mlp}, {plural(r.parameters, 'parameter')}"


def _stacks(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    columns = [Column("models", "right"), Column("ms a step of all", "right"), Column("model-steps/s", "right", drop=1)]
    cells = [
        [str(r.models), spread_text(r.step_ms, surface), rate(r.model_steps_per_second)]
        for r in records
        if isinstance(r, StackSpeed)
    ]
    return _titled("models of the config as one stack", columns, cells, [_times(surface.width)], surface)


def _attention(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    found = {(r.path, r.seq_len): r for r in records if isinstance(r, AttentionSpeed)}
    paths, lengths = list(dict.fromkeys(path for path, _ in found)), sorted({T for _, T in found})
    columns = [Column("T", "right")]
    for number, path in enumerate(paths):
        columns += [Column(f"{path} ms", "right", drop=number), Column("MB", "right")]
    cells = [[str(T), *(text for path in paths for text in _cell(found.get((path, T))))] for T in lengths]
    memory = "medians; MB: memory beyond what was held"
    widths = [max(map(len, column)) for column in zip([column.title for column in columns], *cells, strict=True)]
    if sum(widths) + COLUMN_GAP * (len(widths) - 1) > surface.width:  # memory goes first, of all ways together
        kept = [i for i, column in enumerate(columns) if column.title != "MB"]
        columns, cells = [columns[i] for i in kept], [[row[i] for i in kept] for row in cells]
        memory = "medians; no room for: MB"
    return _titled("one attention block, one row of T tokens", columns, cells, [*PATHS, memory], surface)


PATHS = ["fused, linear: forward and backward", "weights: every exact weight read, forward only"]


def _cell(r: AttentionSpeed | None) -> tuple[str, str]:
    if r is None:
        return "", ""
    return short(r.ms[1]), "" if r.extra_mb is None else short(r.extra_mb)


def _import(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    texts = [f"import torch: {spread_text(r.seconds, surface)} s" for r in records if isinstance(r, ImportSpeed)]
    return Lines(wrap_phrases([[(text, PLAIN)] for text in texts], surface.width))


SECTIONS: Mapping[str, Callable[[Sequence[BenchRecord], Surface], Lines]] = {
    "machine": _machine,
    "steps": _steps,
    "stacks": _stacks,
    "attention": _attention,
    "import_torch": _import,
}


def _titled(
    title: str,
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    notes: Sequence[str],
    surface: Surface,
) -> Lines:
    heading = Lines(wrap_phrases([[(title, BOLD)]], surface.width))
    legend = Lines([line for note in notes for line in wrap_phrases([[(escape(note), DIM)]], surface.width)])
    return heading + table(columns, cells, surface) + legend


def _times(width: int) -> str:
    return "ms: median (25 % - 75 %)" if width >= QUARTILES_FROM else "ms: median"


def spread_text(values: Spread, surface: Surface) -> str:
    """Write a median with its quartiles, or alone where there is little room: 1.02 (0.99-1.05)."""
    low, middle, high = map(short, values)
    return middle if surface.width < QUARTILES_FROM or low == high else f"{middle} ({low}{surface.glyphs.dash}{high})"


def rate(value: float) -> str:
    """Write so many a second with three digits: 189,000, 984, 6.48."""
    rounded = float(f"{value:.3g}")
    if rounded >= 1e9:
        return short(value)
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"
