"""A sweep as a table: a line for each group of seeds, the differences between neighbours, and what went wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from rich.text import Text

from mhsa_cli.records import GroupStats, Quartiles, Status, SweepReport, TrialResult
from mhsa_cli.records.labels import set_words
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, Piece, assemble, wrap_phrases, wrap_words
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.sweep_words import NO_DIFFERENCE, pair_words
from mhsa_cli.text import escape

NEVER = "never"
FAILED_SHOWN = 10
SENTENCES = 12  # beyond, those that show no difference are counted only
QUARTILES_FROM = 72  # columns; below, the final loss is its median alone
LABELS_FROM = 100  # columns; below, the labels are listed under the table
_INDENT = 2


def sweep_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw the groups, then the sentences of their pairs, then the trials that did not finish."""
    lines = _groups(report, surface)
    for part in (_pairs(report, surface), _failed(report.trials, surface)):
        if part:
            lines = lines + Lines([Text()]) + part
    return lines


def _groups(report: SweepReport, surface: Surface) -> Lines:
    keys = list(dict.fromkeys(key for group in report.groups for key in group.overrides))
    goal = f"steps to {percent(report.target)}"
    columns = [Column(escape(title), "right", whole=True) for title in _short_names(keys)]
    columns += [
        Column("success", "right"),
        Column("95 %", "right", drop=1),
        Column(goal, "right", drop=2),
        Column("final loss", "right", drop=3),
    ]
    labelled = any(group.label_sets for group in report.groups)
    beside = labelled and surface.width >= LABELS_FROM
    columns += [Column("most common heads", wraps=True, drop=4)] if beside else []
    rows = []
    for group in report.groups:
        row = [group.overrides.get(key, "") for key in keys]
        loss = group.final_loss if surface.width >= QUARTILES_FROM else (group.final_loss[1],) * 3
        if group.n:
            row += [f"{group.k}/{group.n}", interval(group.wilson95, surface.glyphs.dash)]
            row += [_spread(group.steps_to_target, _whole, surface), _spread(loss, short, surface)]
        else:
            row += ["not trained", *[surface.glyphs.dash] * 3]
        rows.append([*row, *([_common(group)] if beside else [])])
    lines = table(columns, rows, surface) + _legend(report, surface.width)
    return lines + _labels(report, keys, surface) if labelled and not beside else lines


def _labels(report: SweepReport, keys: Sequence[str], surface: Surface) -> Lines:
    """List each group's most common labels where the table has no room for them."""
    lines = [Text(), *wrap_phrases([[("most common heads", DIM)]], surface.width)]
    for group in report.groups:
        if group.label_sets:
            values = [
                f"{name}={group.overrides.get(key, '')}" for name, key in zip(_short_names(keys), keys, strict=True)
            ]
            lines += _item(escape(": ".join([*([" ".join(values)] if values else []), _common(group)])), surface)
    return Lines(lines)


def _whole(steps: float) -> str:
    return step_text(round(steps)) if math.isfinite(steps) else short(steps)


def _legend(report: SweepReport, width: int) -> Lines:
    goal = percent(report.target)
    notes = [
        f"success: ended at {goal} accuracy or above, with the 95 % interval of that share (Wilson)",
        "steps and loss: median (25 % - 75 %)"
        if width >= QUARTILES_FROM
        else "steps: median (25 % - 75 %)   loss: median",
    ]
    if any(None in group.steps_to_target for group in report.groups if group.n):
        notes.append(f"{NEVER}: so many did not get there")
    if report.groups and all(group.n == 1 for group in report.groups):
        notes.append("one seed shows nothing about spread")
    return Lines(wrap_phrases([[(note, DIM)] for note in notes], width))


def _short_names(keys: Sequence[str]) -> list[str]:
    """Leave the section away where the rest of the key is the only one of its name."""
    ends = [key.rpartition(".")[2] for key in keys]
    return [end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)]


def percent(share: float) -> str:
    """Write a share of 1 as a percentage: 90 %, 87.5 %."""
    return f"{100 * share:.4g} %"


def interval(ends: tuple[float, float], dash: str) -> str:
    """Write an interval of shares in whole per cent, outwards never beyond what is possible: 72-99 %."""
    low, high = (fixed(100 * end, 0) for end in ends)
    return f"{low}{dash}{high} %"


def _spread(values: Quartiles, write: Callable[[float], str], surface: Surface) -> str:
    low, middle, high = (NEVER if value is None else write(value) for value in values)
    if values == (None, None, None):
        return NEVER
    return middle if low == middle == high else f"{middle} ({low}{surface.glyphs.dash}{high})"


def _common(group: GroupStats) -> str:
    if not group.label_sets:
        return ""
    labels, count = group.label_sets[0]
    return f"{set_words(labels)} ({count} of {group.models})"


def _pairs(report: SweepReport, surface: Surface) -> Lines:
    lines: list[Text] = []
    count = len(report.pairs)
    begun = [pair for pair in report.pairs if pair.difference.n or not pair.unfinished]  # else nothing has finished
    told = [pair for pair in begun if count <= SENTENCES or pair.difference.status is Status.SHOWN]
    for pair in told:
        lines += _item(escape(pair_words(report, pair)), surface)
    if len(told) < len(begun):
        more = f"{len(begun) - len(told)} of {count} comparisons: {NO_DIFFERENCE}"
        lines += _item(more, surface)
    if any(pair.difference.low is not None for pair in report.pairs):
        total = max(20, count)
        by_chance = f"of {total} such sentences about equal groups, about {total / 20:.0f} would name a difference"
        lines += wrap_phrases([[(f"each at 95 %, paired by seed: {by_chance}", DIM)]], surface.width)
    return Lines(lines)


def _failed(trials: Sequence[TrialResult], surface: Surface) -> Lines:
    failed = [trial for trial in trials if not trial.is_finished]
    if not failed:
        return Lines([])
    counts = Counter(trial.status for trial in failed)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    head = f"{surface.glyphs.cross} not finished: {escape(told)} of {len(trials)} trials"
    lines = wrap_phrases([[(head, alarm_style(surface.depth))]], surface.width)
    for trial in failed[:FAILED_SHOWN]:
        why = trial.message or trial.status
        lines += _item(f"{escape(trial.run)} (seed {trial.seed}): {escape(why)}", surface)
    if len(failed) > FAILED_SHOWN:
        lines.append(assemble([(f"  and {len(failed) - FAILED_SHOWN} more", DIM)]))
    return Lines(lines)


def _item(text: str, surface: Surface) -> list[Text]:
    """Set a sentence behind a dot, its further lines indented under its first; no name in it is broken."""
    rows = wrap_words(text, surface.width - _INDENT)
    pieces: list[list[Piece]] = [
        [(f"{surface.glyphs.dot} " if i == 0 else " " * _INDENT, DIM)] for i in range(len(rows))
    ]
    return [assemble([*piece, (row, PLAIN)]) for piece, row in zip(pieces, rows, strict=True)]
