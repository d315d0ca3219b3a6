"""Tables of `mhsa bench`, one for each section, drawn as soon as it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

from mhsa_cli.records import bench
from mhsa_cli.records.bench import BenchRecord, NotMeasured, Spread
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_phrases
from mhsa_cli.renderers.kit.ticks import short
from mhsa_cli.text import plural

QUARTILES_FROM = 72  # columns; below, times are medians only


def bench_section(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    """Draw the records of one section: a heading, a table, what its columns mean, and what was not measured."""
    measured = [record for record in records if not isinstance(record, NotMeasured)]
    missing = [f"not measured: {r.what} ({r.why})" for r in records if isinstance(r, NotMeasured)]
    return SECTIONS[records[0].section](measured, surface) + wrap_phrases(missing, surface.width, DIM)


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
        Column("size", lambda r: r.name, wraps=True),
        Column("threads", lambda r: str(r.threads), "right"),
        Column("ms/step", lambda r: spread_text(r.step_ms, surface), "right", legend=_ms(surface)),
        Column("steps/s", lambda r: rate(r.steps_per_second), "right", drop=1),
        Column("tokens/s", lambda r: rate(r.tokens_per_second), "right", drop=2),
    ]
    notes = list(dict.fromkeys(map(_size, rows)))
    if len({r.threads for r in rows}) > 1:
        chosen = ", ".join(f"{r.threads} for {r.name}" for r in rows if r.recommended)
        notes.append(f"recommended train.threads at the current load: {chosen}")
    return _title("training step", surface) + table(columns, rows, surface, notes=notes)


def _size(r: bench.StepSpeed) -> str:
    mlp = f", d_mlp {r.size['d_mlp']}" if r.size["d_mlp"] else ""
    rows = f"{plural(r.size['batch_size'], 'row')} of {plural(r.size['seq_len'], 'token')}"
    block = f"{plural(r.size['n_layers'], 'block')} of d_model {r.size['d_model']}, {plural(r.size['n_heads'], 'head')}"
    return f"{r.name}: {rows}, {block}{mlp}, {plural(r.parameters, 'parameter')}"


def _stacks(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    columns: list[Column[bench.StackSpeed]] = [
        Column("models", lambda r: str(r.models), "right"),
        Column("ms/step", lambda r: spread_text(r.step_ms, surface), "right", legend=_ms(surface)),
        Column("model-steps/s", lambda r: rate(r.model_steps_per_second), "right", drop=1),
    ]
    rows = [r for r in records if isinstance(r, bench.StackSpeed)]
    return _title("models of the config trained as one stack", surface) + table(columns, rows, surface)


def _attention(records: Sequence[BenchRecord], surface: Surface) -> Lines:
    found = {(r.path, r.seq_len): r for r in records if isinstance(r, bench.AttentionSpeed)}
    paths = list(dict.fromkeys(path for path, _ in found))

    def speed(path: str, T: int) -> str:
        return short(found[path, T].ms[1]) if (path, T) in found else ""

    def memory(path: str, T: int) -> str:
        extra = found[path, T].extra_mb if (path, T) in found else None
        return "" if extra is None else short(extra)

    first: Column[int] = Column("T", str, "right")
    times = [Column(f"{path} ms", partial(speed, path), "right", drop=i) for i, path in enumerate(paths)]
    sizes = [Column("MB", partial(memory, path), "right", drop=len(paths)) for path in paths]
    notes = [
        "fused, linear: forward and backward",
        "weights: exact weights returned, forward only",
        "ms: median",
        "MB: peak memory of the call",
    ]
    columns = [first, *chain(*zip(times, sizes, strict=True))]
    title = _title("one attention block, one row of T tokens", surface)
    return title + table(columns, sorted({T for _, T in found}), surface, notes=notes)


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


def _title(text: str, surface: Surface) -> Lines:
    return wrap_phrases([text], surface.width, BOLD)


def _ms(surface: Surface) -> str:
    return "ms: median (quartiles)" if surface.width >= QUARTILES_FROM else "ms: median"


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
