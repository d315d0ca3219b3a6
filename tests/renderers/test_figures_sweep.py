"""Figures of sweeps: rows of trials with their intervals, and shares of labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.axes import Axes

from mhsa_cli.errors import UsageError
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.sweep import LabelShare
from mhsa_cli.renderers.figures.sheet_options import Page, Theme
from mhsa_cli.renderers.figures.sweep import pairs_figure, shares_figure, sweep_figure
from tests.renderers.swept import REPORT
from tests.renderers.test_figures import texts

NARROWEST, NARROW, WIDE = Page(1.5), Page(3.3), Page(7.0, Theme.DARK)


def test_rows_of_a_sweep_hold_the_intervals_that_the_text_states() -> None:
    figure = sweep_figure(REPORT, {}, WIDE)
    success, steps, loss, onsets = figure.axes

    def diamonds(axes: Axes) -> list[float]:
        return [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]  # type: ignore[index]

    def intervals(axes: Axes) -> list[tuple[float, float]]:
        return [tuple(line.get_xdata()) for line in axes.lines if line.get_marker() == "None"]  # type: ignore[arg-type, misc]

    assert diamonds(success) == [group.k / group.n for group in REPORT.groups]
    assert intervals(success) == [group.wilson95 for group in REPORT.groups]
    assert diamonds(steps) == [288, 131, 91] and diamonds(loss) == [1.31, 0.025, 0.004, 0.0024]
    edge = steps.get_xlim()[1]
    assert intervals(steps) == [(352, edge), (202, edge), (118, 141), (84, 97)]  # nothing bounds the first two
    assert intervals(loss)[1] == (0.0114, 0.61) and loss.get_xscale() == "log"
    points = [line.get_xdata() for line in loss.lines if line.get_marker() == "o"]
    assert [len(row) for row in points] == [16, 16, 16, 16]  # type: ignore[arg-type]
    assert diamonds(onsets) == [95.5, 104, 415, 60, 104]
    assert {"n_heads=4: previous token + induction (circuit)", "n_heads=8"} <= {*texts(figure)}
    found = pairs_figure(REPORT, replace(WIDE, only="loss"))
    assert intervals(found.axes[0])[:3] == [(-1.6, -0.71), (-0.4, 0.2), (-0.9, -0.1)]


def test_shares_of_labels_have_their_wilson_intervals() -> None:
    label, ends = Label("offset", Role.SHOWN, 6), (0.3, 0.9)
    shares = [LabelShare(label, 4, 6, ends), LabelShare(None, 2, 6, (0.1, 0.7))]
    report = replace(REPORT, groups=[replace(REPORT.groups[1], shares=shares)])
    [axes] = shares_figure(report, NARROW).axes
    assert [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2] == [ends, (0.1, 0.7)]  # type: ignore[arg-type]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"] == [4 / 6, 2 / 6]  # type: ignore[index]
    with pytest.raises(UsageError):
        shares_figure(REPORT, NARROW)
