"""The arithmetic of a sweep before it starts, in lines: trials, time, memory, disk, and what its seeds can show."""

from __future__ import annotations

from collections.abc import Iterable

from mhsa_cli.records.sweep import LEAST_VALUES, SeedPower, SweepPlan
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, stacked, wrap_phrases
from mhsa_cli.renderers.pictures.sweep_words import needed
from mhsa_cli.text import byte_size, plural


def plan_lines(plan: SweepPlan, surface: Surface) -> Lines:
    """Write what a sweep takes, and below, what its seeds can show."""
    return stacked(
        [
            _lines(_costs(plan), surface),
            _lines(_comparisons(plan), surface),
            wrap_phrases(["dry run: nothing was trained or written"], surface.width, DIM),
        ]
    )


def _lines(sentences: Iterable[str], surface: Surface) -> Lines:
    return Lines(line for sentence in sentences for line in hanging(sentence, surface.width))


def _costs(plan: SweepPlan) -> list[str]:
    skipped = f" ({plan.skipped:,} skipped)" if plan.skipped else ""
    settings = f"{plural(plan.settings, 'setting')}{skipped} x {plural(plan.seeds, 'seed')}"
    many = plan.processes is not None and plan.processes > 1
    where = "a process" if plan.processes is None else f"{plan.processes} process{'es' if many else ''}"
    each = " in each" if many else ""
    at_once = f"{plural(plan.together, 'trial')} at a time{each}"
    free = "" if plan.memory_free is None else f"; {byte_size(plan.memory_free)} free"
    return [
        f"trials: {settings} = {plan.trials:,}",
        _time(plan, where),
        f"memory: about {byte_size(plan.memory)} for {where}, {at_once}{free}",
        f"disk: about {byte_size(plan.disk)}; {byte_size(plan.disk_free)} free",
    ]


def _time(plan: SweepPlan, where: str) -> str:
    time = plan.time
    if time is None:
        return "time: depends on the cluster"
    part = "" if time.measured == time.shapes else f", {time.measured} of {time.shapes} shapes measured"
    return f"time: about {about(time.seconds)} with {where}{part}"


def about(seconds: float) -> str:
    """Write a time to about a tenth of itself: 4 s, 12 s, 45 s, 3 min, 2.5 h, 12 h."""
    if seconds < 20:
        return f"{max(1, round(seconds))} s"
    if seconds < 90:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"


def _comparisons(plan: SweepPlan) -> list[str]:
    power = plan.power
    if power is None:
        why = "one setting" if plan.settings == 1 else "no two settings differ in one value alone"
        return [f"comparisons: none, {why}; the interval of a median needs {LEAST_VALUES} seeds"]
    pairs, seeds = f"{plural(power.pairs, 'pair')} of neighbouring settings", plural(power.seeds, "seed")
    figures, enough = power.comparisons // power.pairs, power.seeds >= power.least_for_ranks
    ranks = "differences" if enough else f"no difference: {needed(power.least_for_ranks)}"
    which = " (success)" if figures == 1 else ""
    found = [
        f"comparisons: {pairs} x {plural(figures, 'figure')}{which} = {power.comparisons:,}, Holm's correction at 5%",
        f"steps and loss: {seeds} can show {ranks}",
        f"success: {seeds} can show {_success(power)}",
    ]
    if enough and power.power is not None:
        found.append(f"power: one standard deviation in steps or loss is shown in {_percent(power.power)} of sweeps")
    return found


def _percent(share: float) -> str:
    """Write a simulated share to a twentieth: about 60%."""
    text = round(20 * share) * 5
    return "less than 5%" if text == 0 else "nearly all" if text == 100 else f"about {text}%"


def _success(power: SeedPower) -> str:
    n, most = power.seeds, power.most_successes
    if most is None:
        return f"no difference; {power.least_for_success} can"
    return f"a difference such as {n:,} of {n:,} against {most:,} of {n:,}, or a larger one"


def too_few(power: SeedPower | None) -> str | None:
    """Write in one line what the seeds of a sweep cannot show; None if they can show a difference in every figure."""
    if power is None or power.seeds >= power.least_for_ranks:
        return None
    seeds, among = plural(power.seeds, "seed"), f"in {plural(power.comparisons, 'comparison')}"
    if power.most_successes is None:
        least = f"success needs {power.least_for_success}; of steps and loss, {needed(power.least_for_ranks)}"
        return f"note: {seeds} can show no difference {among}: {least}"
    return f"note: {seeds} can show no difference in steps or loss {among}: {needed(power.least_for_ranks)}"
