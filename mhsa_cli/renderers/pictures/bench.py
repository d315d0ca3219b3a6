"""What `mhsa bench` measured, as tables: one section after another, each as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from mhsa_cli.records import bench
from mhsa_cli.records.bench import BenchRecord, NotMeasured, Spread
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, paragraphs, wrap_phrases
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.text import plural

_UNBOUNDED = 1_000_000  # columns
QUARTILES_FROM = 72  # columns; below, times are medians alone


def bench_section(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    """Draw the records of one section: a heading, a table, what its columns mean, and what was left out."""
    measured = [record for record in records if not isinstance(record, NotMeasured)]
    left_out = [f"not measured: {r.what} ({r.why})" for r in records if isinstance(r, NotMeasured)]
    return SECTIONS[records[0].section](measured, surface) + wrap_phrases(left_out, surface.width, DIM)


def _machine(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    phrases = []
    for r in records:
        assert isinstance(r, bench.Machine)
        device = r.device if r.gpu is None else f"{r.device} ({r.gpu})"
        threads = f"train.threads={r.threads}"
        phrases += [f"{r.cpu}, {plural(r.cores, 'core')}", f"device {device}", f"torch {r.torch}", threads]
    return wrap_phrases(phrases, surface.width)


def _steps(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    rows = [r for r in records if isinstance(r, bench.StepSpeed)]
    columns: list[Column[bench.StepSpeed]] = [
        Column("size", lambda r: r.name, flexible=True),
        Column("threads", lambda r: str(r.threads), "right"),
        Column("ms a step", lambda r: spread_text(r.step_ms, surface), "right"),
        Column("steps/s", lambda r: rate(r.steps_per_second), "right", drop=1),
        Column("tokens/s", lambda r: rate(r.tokens_per_second), "right", drop=2),
    ]
    notes = [_times(surface), *dict.fromkeys(_size(r) for r in rows)]
    if len({r.threads for r in rows}) > 1:
        chosen = ", ".join(f"{r.threads} for {r.name}" for r in rows if r.recommended)
        notes.append(f"train.threads to choose, with this machine as busy as it is now: {chosen}")
    return _titled("training step", table(columns, rows, surface), notes, surface)


def _size(r: bench.StepSpeed) -> str:
    mlp = f", d_mlp {r.size['d_mlp']}" if r.size["d_mlp"] else ""
    rows = f"{plural(r.size['batch_size'], 'row')} of {plural(r.size['seq_len'], 'token')}"
    block = f"{plural(r.size['n_layers'], 'block')} of d_model {r.size['d_model']}, {plural(r.size['n_heads'], 'head')}"
    return f"{r.name}: {rows}, {block}{mlp}, {plural(r.parameters, 'parameter')}"


def _stacks(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    columns: list[Column[bench.StackSpeed]] = [
        Column("models", lambda r: str(r.models), "right"),
        Column("ms a step of all", lambda r: spread_text(r.step_ms, surface), "right"),
        Column("model-steps/s", lambda r: rate(r.model_steps_per_second), "right", drop=1),
    ]
    picture = table(columns, [r for r in records if isinstance(r, bench.StackSpeed)], surface)
    return _titled("models of the config as one stack", picture, [_times(surface)], surface)


def _attention(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    found = {(r.path, r.seq_len): r for r in records if isinstance(r, bench.AttentionSpeed)}
    lengths = sorted({T for _, T in found})

    def speed(path: str, T: int) -> str:
        return short(found[path, T].ms[1]) if (path, T) in found else ""

    def memory(path: str, T: int) -> str:
        extra = found[path, T].extra_mb if (path, T) in found else None
        return "" if extra is None else short(extra)

    paths = list(dict.fromkeys(path for path, _ in found))
    first: Column[int] = Column("T", str, "right")
    times = [Column(f"{path} ms", partial(speed, path), "right", drop=number) for number, path in enumerate(paths)]
    sizes = [Column("MB", partial(memory, path), "right") for path in paths]
    columns = [first, *chain(*zip(times, sizes, strict=True))]
    notes = [*PATHS, "medians; MB: memory beyond what was held"]
    if table(columns, lengths, replace(surface, width=_UNBOUNDED)).columns > surface.width:
        columns = [first, *times]  # memory goes first, of all ways together
        notes = [*PATHS, "medians; no room for: MB"]
    return _titled("one attention block, one row of T tokens", table(columns, lengths, surface), notes, surface)


PATHS = ["fused, linear: forward and backward", "weights: every exact weight read, forward only"]


def _import(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    texts = [f"import torch: {spread_text(r.seconds, surface)} s" for r in records if isinstance(r, bench.ImportSpeed)]
    return wrap_phrases(texts, surface.width)


SECTIONS: Mapping[str, Callable[[Sequence[BenchRecord], Surface], Lines]] = {
    "machine": _machine,
    "steps": _steps,
    "stacks": _stacks,
    "attention": _attention,
    "import_torch": _import,
}


def _titled(title: str, picture: Lines, notes: Sequence[str], surface: Surface) -> Lines:
    return wrap_phrases([title], surface.width, BOLD) + picture + paragraphs(notes, surface.width, DIM)


def _times(surface: Surface) -> str:
    return "ms: median (25 % - 75 %)" if surface.width >= QUARTILES_FROM else "ms: median"


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
