"""The labels of heads in a sweep: shares of models, sets of labels, and a row for each trial."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from mhsa_cli.records.labels import set_words
from mhsa_cli.records.sweep import GroupStats, LabelShare, SweepReport, TrialResult
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import percents, short, step_text
from mhsa_cli.renderers.pictures.sweep_figures import NEVER, bounded, interval, loss_text
from mhsa_cli.renderers.pictures.sweep_words import circuit_words, goal_text, short_names

SETS = 3  # sets of labels of a group; the others are counted
R = TypeVar("R")


def _settings(report: SweepReport, of: Callable[[R], GroupStats | None]) -> list[Column[R]]:
    """Make the columns of the varied settings; a row without a group, as below another of its group, has none."""

    def value(key: str, row: R) -> str:
        group = of(row)
        return "" if group is None else group.overrides.get(key, "")

    return [Column(title, partial(value, key), "right", whole=True) for key, title in short_names(report).items()]


def shares_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw how many models of each group have a head with each label, and each circuit."""
    Row = tuple[GroupStats, LabelShare | None, bool]
    rows: list[Row] = [
        (group, share, place == 0) for group in report.groups for place, share in enumerate(group.shares or [None])
    ]

    def words(row: Row) -> str:
        if row[1] is None:
            return "no labels recorded" if row[0].models else "no finished trial"
        return share_words(row[1])

    def ends(row: Row) -> str:
        return "" if row[1] is None else interval(row[1].wilson95, surface.glyphs.dash)

    columns: list[Column[Row]] = [
        *_settings(report, lambda row: row[0] if row[2] else None),
        Column("label", words, wraps=True),
        Column(
            "seeds",
            lambda row: "" if row[1] is None else f"{row[1].models}/{row[1].of}",
            "right",
            legend="seeds: models with such a head, of those that finished",
        ),
        Column("95% CI", ends, "right", drop=1, legend="CI: of each share, Wilson"),
    ]
    return table(columns, rows, surface)


def share_words(share: LabelShare) -> str:
    """Name what models have: a head with a label, a circuit, or no label."""
    if share.label is None:
        return set_words(())
    return circuit_words(share.label) if share.is_circuit else share.label.text


def sets_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw the most common sets of labels of a model, by group."""
    rows: list[tuple[GroupStats, str, str, bool]] = []
    for group in report.groups:
        shown = group.label_sets[:SETS]
        rows += [
            (group, set_words(labels), f"{count}/{group.models}", place == 0)
            for place, (labels, count) in enumerate(shown)
        ]
        if others := len(group.label_sets) - len(shown):
            left = group.models - sum(count for _, count in shown)
            rows.append((group, f"{others} other {'set' if others == 1 else 'sets'}", f"{left}/{group.models}", False))
    if not rows:
        return Lines()
    columns: list[Column[tuple[GroupStats, str, str, bool]]] = [
        *_settings(report, lambda row: row[0] if row[3] else None),
        Column("labels of all heads of a model", lambda row: row[1], wraps=True),
        Column("seeds", lambda row: row[2], "right"),
    ]
    return table(columns, rows, surface)


def trials_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw a row for each trial, with the labels of its heads; the one of median loss of its group has a mark."""
    middle = {id(report.median_trial(cell)) for cell in range(len(report.groups))}
    columns: list[Column[TrialResult]] = [
        *_settings(report, lambda trial: report.groups[trial.cell]),
        Column("seed", lambda trial: str(trial.seed), "right", whole=True),
        Column("accuracy", lambda trial: percents(trial.final_accuracy), "right"),
        Column("final loss", _final_loss, "right", drop=2),
        Column("", lambda trial: "*" if id(trial) in middle else "", legend="*: median final loss of its setting"),
        Column(
            f"steps to {goal_text(report)}",
            lambda trial: "" if trial.steps_to_goal is None else step_text(trial.steps_to_goal),
            "right",
            drop=1,
        ),
        Column("labels", _labels, wraps=True),
    ]
    return table(columns, report.trials, surface)


def _final_loss(trial: TrialResult) -> str:
    if trial.final_loss is None:
        return NEVER if trial.cause == "nonfinite" else ""
    return short(trial.final_loss)


def _labels(trial: TrialResult) -> str:
    return set_words(trial.labels) if trial.is_finished else trial.status


def medians_table(report: SweepReport, surface: Surface) -> Lines:
    """Draw the median final loss of each group, and the run whose curve stands for it."""
    rows = [(group, report.median_trial(cell)) for cell, group in enumerate(report.groups)]
    columns: list[Column[tuple[GroupStats, TrialResult | None]]] = [
        *_settings(report, lambda row: row[0]),
        Column("finished", lambda row: str(row[0].models), "right"),
        Column(
            "final loss",
            lambda row: loss_text(row[0].final_loss, surface.glyphs.dash) if row[0].n else "",
            "right",
            drop=1,
            legend=bounded("final loss: median", (group.final_loss for group, _ in rows)),
        ),
        Column("run of median loss", lambda row: Path(row[1].run).name if row[1] else "", whole=True),
    ]
    return table(columns, rows, surface)
