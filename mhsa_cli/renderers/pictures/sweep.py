"""A sweep as a table: a line for each group of seeds, the differences between neighbours, and failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from rich.text import Text

from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import set_words
from mhsa_cli.records.sweep import GroupStats, Quartiles, SweepReport, TrialResult
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import INDENT, Lines, assemble, stacked, wrap_phrases, wrap_words
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.sweep_words import (
    NO_DIFFERENCE,
    ONE_SEED,
    goal_text,
    group_name,
    pair_words,
    short_names,
)
from mhsa_cli.text import escape

NEVER = "never"
FAILED_SHOWN = 10
SENTENCES = 12  # beyond, comparisons that show no difference are only counted
QUARTILES_FROM = 72  # columns; below, the final loss is its median only
LABELS_FROM = 100  # columns; below, the labels are listed under the table


def sweep_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw the groups, the comparisons of neighbours, and the trials that did not finish."""
    beside = surface.width >= LABELS_FROM
    labels = Lines() if beside else _labels(report, surface)
    groups = _groups(report, surface, labelled=beside)
    return stacked([groups, labels, _pairs(report, surface), _failed(report.trials, surface)])


def _groups(report: SweepReport, surface: Surface, *, labelled: bool) -> Lines:
    dash, goal, wide = surface.glyphs.dash, goal_text(report), surface.width >= QUARTILES_FROM
    labelled = labelled and any(group.label_sets for group in report.groups)

    def override(key: str, group: GroupStats) -> str:
        return group.overrides.get(key, "")

    def trained(text: Callable[[GroupStats], str], group: GroupStats) -> str:
        return text(group) if group.n else dash

    def loss(group: GroupStats) -> str:
        return _spread(group.final_loss if wide else (group.final_loss[1],) * 3, short, dash)

    success = partial(trained, lambda g: interval(g.wilson95, dash))
    steps = partial(trained, lambda g: _spread(g.steps_to_goal, _whole, dash))
    meaning = f"loss: median{' (quartiles)' if wide else ''}"
    columns: list[Column[GroupStats]] = [
        *(Column(title, partial(override, key), "right", whole=True) for key, title in short_names(report).items()),
        Column(
            "success",
            lambda g: f"{g.k}/{g.n}" if g.n else "not trained",
            "right",
            legend=f"success: final accuracy {goal} or above",
        ),
        Column("95% CI", success, "right", drop=1, legend="CI: of success, Wilson"),
        Column(f"steps to {goal}", steps, "right", drop=2, legend="steps: median (quartiles)"),
        Column("final loss", partial(trained, loss), "right", drop=3, legend=meaning),
        Column("most common labels", _common, wraps=True, drop=4, when=labelled),
    ]
    notes = []
    if any(None in group.steps_to_goal for group in report.groups if group.n):
        notes.append(f"{NEVER}: goal not reached")
    if report.groups and all(group.n == 1 for group in report.groups):
        notes.append(ONE_SEED)
    return table(columns, report.groups, surface, notes=notes)


def _labels(report: SweepReport, surface: Surface) -> Lines:
    """List each group's most common labels where the table has no room for them."""
    lines = Lines()
    for group in report.groups:
        if group.label_sets:
            name = group_name(report, group)
            lines += _item(f"{name}: {_common(group)}" if name else _common(group), surface)
    return wrap_phrases(["most common labels"], surface.width, DIM) + lines if lines else lines


def _whole(steps: float) -> str:
    return step_text(round(steps)) if math.isfinite(steps) else short(steps)


def interval(ends: tuple[float, float], dash: str) -> str:
    """Write an interval of shares in whole per cent: 72-99%."""
    low, high = (fixed(100 * end, 0) for end in ends)
    return f"{low}{dash}{high}%"


def _spread(values: Quartiles, write: Callable[[float], str], dash: str) -> str:
    low, middle, high = (NEVER if value is None else write(value) for value in values)
    return middle if low == middle == high else f"{middle} ({low}{dash}{high})"


def _common(group: GroupStats) -> str:
    if not group.label_sets:
        return ""
    labels, count = group.label_sets[0]
    return f"{set_words(labels)} ({count} of {group.models})"


def _pairs(report: SweepReport, surface: Surface) -> Lines:
    lines = Lines()
    count = len(report.pairs)
    begun = [pair for pair in report.pairs if pair.difference.n or not pair.unfinished]  # else nothing has finished
    told = [pair for pair in begun if count <= SENTENCES or pair.difference.status is Status.SHOWN]
    for pair in told:
        lines += _item(pair_words(report, pair), surface)
    if len(told) < len(begun):
        lines += _item(f"{len(begun) - len(told)} of {count} comparisons: {NO_DIFFERENCE}", surface)
    if any(pair.difference.low is not None for pair in report.pairs):
        total = max(20, count)
        notes = [
            "95% CIs, paired by seed, not corrected for multiple comparisons",
            f"of {total} comparisons of equal groups, about {total / 20:.0f} would show a difference",
        ]
        lines += wrap_phrases(notes, surface.width, DIM)
    return lines


def _failed(trials: Sequence[TrialResult], surface: Surface) -> Lines:
    failed = [trial for trial in trials if not trial.is_finished]
    if not failed:
        return Lines()
    counts = Counter(trial.status for trial in failed)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    head = f"{surface.glyphs.cross} not finished: {told} of {len(trials)} trials"
    lines = wrap_phrases([head], surface.width, alarm_style(surface.depth))
    for trial in failed[:FAILED_SHOWN]:
        lines += _item(f"{trial.run} (seed {trial.seed}): {trial.message or trial.status}", surface)
    more = len(failed) - FAILED_SHOWN
    return lines + ([Text.styled(f"  and {more} more", DIM)] if more > 0 else [])


def _item(text: str, surface: Surface) -> Lines:
    """Set a sentence behind a dot, its further lines indented under its first; no name in it is broken."""
    first, *rest = wrap_words(escape(text), surface.width - len(INDENT))
    dot = assemble([(f"{surface.glyphs.dot} ", DIM), (first, PLAIN)])
    return Lines([dot, *(Text(INDENT + row) for row in rest)])
