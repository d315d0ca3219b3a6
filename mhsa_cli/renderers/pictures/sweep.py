"""A sweep as a table: a line for each group of seeds, the differences between neighbours, and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter

from rich.text import Text

from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import set_words
from mhsa_cli.records.sweep import (
    GroupStats,
    PairStats,
    SweepReport,
    TrialCurve,
    TrialResult,
)
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM, PLAIN, alarm_style
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import INDENT, Lines, assemble, stacked, wrap_phrases, wrap_words
from mhsa_cli.renderers.pictures.small_multiples import Curve, quartile_curve, small_multiples
from mhsa_cli.renderers.pictures.sweep_figures import MORE, bounded, interval, loss_text, steps_text
from mhsa_cli.renderers.pictures.sweep_onsets import onsets_table
from mhsa_cli.renderers.pictures.sweep_scores import own_scores_table
from mhsa_cli.renderers.pictures.sweep_words import (
    NO_DIFFERENCE,
    ONE_SEED,
    PENDING,
    compared,
    goal_text,
    group_name,
    needed_for,
    pair_words,
    short_names,
)
from mhsa_cli.text import escape, plural

FAILED_SHOWN = 10
SENTENCES = 12  # beyond, comparisons that show no difference are only counted
INTERVALS_FROM = 72  # columns; below, the final loss is its median only
LABELS_FROM = 100  # columns; below, the labels are listed under the table


def sweep_picture(report: SweepReport, curves: Sequence[Sequence[TrialCurve]], surface: Surface, name: str) -> Lines:
    """Draw the curves of each group's finished trials, over the table; `name` is that of the sweep."""
    drawn = curves_of(report, curves, name)
    return stacked([curves_picture(drawn, surface) if drawn else Lines(), sweep_table(report, surface)])


def curves_of(report: SweepReport, curves: Sequence[Sequence[TrialCurve]], name: str) -> dict[int, Curve]:
    """Make the curves of each group that has a finished trial, by its number."""
    groups = enumerate(zip(report.groups, curves, strict=True))
    return {cell: curve_of(group_name(report, group) or name, own) for cell, (group, own) in groups if own}


def curves_picture(curves: Mapping[int, Curve], surface: Surface) -> Lines:
    """Draw the curves of the groups beside each other."""
    return small_multiples(list(curves.values()), surface, line="finished run of median loss")


def curve_of(title: str, trials: Sequence[TrialCurve]) -> Curve:
    """Draw the run of median final loss over the quartiles of all runs."""
    curves = [points for _, points in sorted(trials, key=itemgetter(0))]
    middle = curves[(len(curves) - 1) // 2]
    losses = {int(step): [c[i][1] for c in curves if i < len(c)] for i, (step, _) in enumerate(middle)}
    return quartile_curve(title, losses, [loss for _, loss in middle])


def sweep_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw the groups, the comparisons of neighbours, and the trials that did not finish."""
    beside = surface.width >= LABELS_FROM
    labels = Lines() if beside else _labels(report, surface)
    groups = _groups(report, surface, labelled=beside)
    onsets, own = onsets_table(report, surface), own_scores_table(report, surface)
    return stacked([groups, labels, onsets, own, pair_sentences(report, surface), _failed(report.trials, surface)])


def _groups(report: SweepReport, surface: Surface, *, labelled: bool) -> Lines:
    dash, goal, wide = surface.glyphs.dash, goal_text(report), surface.width >= INTERVALS_FROM
    labelled = labelled and any(group.label_sets for group in report.groups)

    def override(key: str, group: GroupStats) -> str:
        return group.overrides.get(key, "")

    def trained(text: Callable[[GroupStats], str], group: GroupStats) -> str:
        return text(group) if group.n and not group.pending else dash

    def reached(group: GroupStats) -> str:
        return steps_text(group.steps_to_goal, group.watched, dash)

    def loss(group: GroupStats) -> str:
        return loss_text(group.final_loss, dash if wide else "")

    def succeeded(group: GroupStats) -> str:
        return f"{group.k}/{group.n}{f', {group.pending} to come' if group.pending else ''}"

    success = partial(trained, lambda g: interval(g.wilson95, dash))
    losses, steps = (
        [getattr(g, part) for g in report.groups if not g.pending] for part in ("final_loss", "steps_to_goal")
    )
    meaning = bounded("loss: median", losses if wide else ())
    columns: list[Column[GroupStats]] = [
        *(Column(title, partial(override, key), "right", whole=True) for key, title in short_names(report).items()),
        Column(
            "success",
            lambda g: succeeded(g) if g.n else "no result yet" if g.pending else "no result",
            "right",
            legend=f"success: ends with an accuracy of {goal} or above",
        ),
        Column("95% CI", success, "right", drop=1, legend="CI: of success, Wilson"),
        Column(f"steps to {goal}", partial(trained, reached), "right", drop=2, legend=bounded("steps: median", steps)),
        Column("final loss", partial(trained, loss), "right", drop=3, legend=meaning),
        Column("most common labels", _common, wraps=True, drop=4, when=labelled),
    ]
    notes = []
    if any(MORE in trained(reached, group) for group in report.groups):
        notes.append(f"{MORE}: not reached by then")
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


def _common(group: GroupStats) -> str:
    if not group.label_sets:
        return ""
    labels, count = group.label_sets[0]
    if count == 1 < group.models:
        return f"another set in each of {group.models}"
    return f"{set_words(labels)} ({count} of {group.models})"


def pair_sentences(report: SweepReport, surface: Surface) -> Lines:
    """Draw the sentences about neighbouring groups, and by what tests they are stated."""
    lines = Lines()
    for text in stated(report):
        lines += _item(text, surface)
    if made := compared(report):
        over = "all " if made == len(report.pairs) else f"{made} of "
        notes = [
            "differences: medians over paired seeds",
            f"stated at 5% over {over}{plural(len(report.pairs), 'comparison')}: signed-rank tests, "
            "Fisher's for success, Holm's correction",
        ]
        lines += wrap_phrases(notes, surface.width, DIM)
    return lines


def stated(report: SweepReport) -> list[str]:
    """Write the differences of neighbouring groups that are shown, all while they are few, and count the others."""
    count = len(report.pairs)
    begun = [pair for pair in report.pairs if _is_begun(pair)]
    told = [pair for pair in begun if pair.is_shown or (count <= SENTENCES and not _is_equal(pair))]
    rest = [pair for pair in begun if not pair.is_shown] if count > SENTENCES else []
    waiting = sum(pair.pending for pair in rest)
    few = sum(pair.status is Status.NOT_MEASURED for pair in rest) - waiting
    counted = (
        (len(rest) - few - waiting, NO_DIFFERENCE),
        (few, f"too few seeds: {needed_for(report)}"),
        (waiting, PENDING),
    )
    numbers = [f"{number} of {count} comparisons: {why}" for number, why in counted if number]
    return [pair_words(report, pair) for pair in told] + numbers


def _is_begun(pair: PairStats) -> bool:
    """Whether there is something to compare, or nothing will be."""
    if pair.counts is not None:
        return all(n for _, n in pair.counts)
    return bool(pair.difference and pair.difference.n) or not pair.unfinished


def _is_equal(pair: PairStats) -> bool:
    """Whether two groups succeeded equally often, as their table shows."""
    if pair.counts is None:
        return False
    (k1, n1), (k2, n2) = pair.counts
    return k1 * n2 == k2 * n1


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
