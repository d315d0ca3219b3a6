"""The parts of a sweep that commands on runs show: shares of labels, onsets, trials, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from mhsa_cli.records.sweep import FormedStats, LabelShare, Median, SweepReport
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.pictures.sweep_labels import medians_table, sets_table, shares_table, trials_table
from mhsa_cli.renderers.pictures.sweep_onsets import SCALE, onsets_table
from mhsa_cli.renderers.pictures.sweep_pairs import pairs_table
from tests.renderers.drawn import SURFACES, golden, on
from tests.renderers.swept import COPY, FORMED, GROUPS, REPORT, SPREAD

INDUCTION = FORMED[1][0].label
SHARES = [
    [LabelShare(COPY, 7, 16, (0.231, 0.668)), LabelShare(None, 9, 16, (0.332, 0.769))],
    [
        LabelShare(INDUCTION, 12, 16, (0.505, 0.898), True),
        LabelShare(COPY, 16, 16, (0.806, 1.0)),
        LabelShare(SPREAD, 2, 16, (0.035, 0.36)),
    ],
]
SHARED = replace(
    REPORT,
    groups=[
        replace(GROUPS[0], shares=SHARES[0]),
        replace(GROUPS[1], models=0, label_sets=[]),
        GROUPS[2],
        replace(GROUPS[3], shares=SHARES[1]),
    ],
    trials=[replace(trial, final_loss=0.1 * trial.seed) for trial in REPORT.trials[::5]],
)
PICTURES: dict[str, Callable[[SweepReport, Surface], Lines]] = {
    "labels": lambda report, surface: stacked([shares_table(report, surface), sets_table(report, surface)]),
    "onsets": lambda report, surface: onsets_table(report, surface, drawn=True),
    "trials": lambda report, surface: stacked([trials_table(report, surface), medians_table(report, surface)]),
    "pairs": pairs_table,
}


@pytest.mark.parametrize("name", PICTURES)
def test_parts_of_a_sweep_stay_as_they_were(name: str) -> None:
    golden(f"sweep-{name}-80", PICTURES[name](SHARED, on(80)).plain)


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_parts_of_a_sweep_keep_within_their_width(width: int, surface: str) -> None:
    for draw in PICTURES.values():
        lines = draw(SHARED, replace(on(width, surface), bounded=True))
        assert lines and all(line.cell_len <= width for line in lines)
        assert surface != "ascii" or all(line.plain.isascii() for line in lines)


@pytest.mark.parametrize(
    ("found", "cells"),
    [
        (Median(0, 0, 100, 9), {**dict.fromkeys(range(SCALE), "─"), 0: "●"}),
        (Median(100, 50, math.inf, 9), {**dict.fromkeys(range(12, SCALE), "─"), SCALE - 1: "●"}),
        (Median(50, None, None, 4), {12: "●"}),
        (Median(None, 100, 100, 9), {SCALE - 1: "─"}),
    ],
)
def test_the_scale_of_steps_holds_the_median_between_its_ends(found: Median, cells: dict[int, str]) -> None:
    group = replace(GROUPS[0], watched=100, formed=[FormedStats(COPY, 9, 9, found)])
    row = onsets_table(replace(REPORT, groups=[group]), on(120), drawn=True)[1].plain
    title = onsets_table(replace(REPORT, groups=[group]), on(120), drawn=True)[0].plain.index("steps 0–100")
    drawn = row[title:].ljust(SCALE)
    assert {place: char for place, char in enumerate(drawn) if char != " "} == cells
