"""Tables and strips of scores of one's own, from hand-made figures: every number in them was put in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.heads import HeadScore, OwnFigure
from mhsa_cli.records.sweep import GroupStats, Median, OwnStats, SweepReport
from mhsa_cli.records.timeline import HeadHistory
from mhsa_cli.renderers.pictures.own_scores import kept_names, number_text, own_score_table
from mhsa_cli.renderers.pictures.sweep_scores import own_scores_table
from mhsa_cli.renderers.pictures.timeline import timeline_picture
from tests.renderers.drawn import SURFACES, falling, golden, on

CHANCE = {"uniform": 0.19, "null_low": 0.171, "null": 0.232}
FAR = {"uniform": 2250.0, "null_low": 2100.4, "null": 12_345.0}
HEADS = [
    HeadScore(0, 0, {}, own_scores={
        "before": OwnFigure(0.94, 0.021, lift=0.926, **CHANCE), "reach": OwnFigure(3191.9, 6.02, **FAR),
    }),
    HeadScore(0, 1, {}, own_scores={
        "before": OwnFigure(0.05, 0.0004, lift=-0.17, **CHANCE), "reach": OwnFigure(None, None, **FAR),
    }),
]  # fmt: skip
NAMES = ["before", "reach"]
GROUPS = [
    GroupStats({"model.n_heads": str(n)}, 8, 8, 8, (0.7, 1.0), Median(90, 80, 99, 8), 99, Median(0.1, 0.1, 0.1, 8),
        own_scores=[
            OwnStats("before", Median(0.05, 0.01, 0.09, 8), Median(0.94, 0.9, 0.97, 8), **CHANCE),
            OwnStats("reach", Median(None, None, None, 0), Median(31.5, None, None, 4), 22.5, None, None),
        ])
    for n in (1, 2)
]  # fmt: skip


def test_tables_stay_as_they_were() -> None:
    assert kept_names(HEADS) == NAMES
    golden("own-scores", own_score_table(HEADS, NAMES, on(60)).plain)
    golden("own-scores-sweep", own_scores_table(SweepReport(GROUPS, [], [], 0.99), on(80)).plain)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_table_is_wider_than_its_paper(width: int) -> None:
    for surface in (on(width, kind) for kind in SURFACES):
        assert own_score_table(HEADS, NAMES, surface).columns <= width
        assert own_scores_table(SweepReport(GROUPS, [], [], 0.99), surface).columns <= width


def test_a_narrow_table_hides_the_last_scores_and_says_so() -> None:
    text = own_score_table(HEADS, [*NAMES, "a_third_score_of_mine"], on(36)).plain
    assert "before" in text.splitlines()[0] and "a_third" not in text.splitlines()[0]
    assert "a_third_score_of_mine" in text.replace("\n", " ")


def test_a_sweep_without_scores_has_no_table() -> None:
    groups = [replace(group, own_scores=()) for group in GROUPS]
    assert own_scores_table(SweepReport(groups, [], [], 0.99), on(80)).plain == ""


def test_a_value_is_drawn_on_its_own_scale() -> None:
    steps = [0, 1, 2, 4, 8, 16, 32]
    low, high = [-3.0, -3.0, -2.0, -1.0, 0.5, 1.0, 1.0], [5.0, 5.0, 5.0, None, 4.0, 3.0, 2.0]
    heads = [
        HeadHistory(0, i, "reach", "", steps, values, values[-1])
        for i, values in enumerate(list[list[float | None]]([low, high]))
    ]
    for kind in ("none", "ascii"):
        lines = timeline_picture([falling(32)], heads, on(70, kind), target="reach", scale=(-3.0, 5.0))
        golden(f"timeline-value-{kind}", lines.plain)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.000"), (0.1234, "0.123"), (-9.9, "-9.900"), (3191.94, "3191.9"), (2e-5, "2e-5"), (1e6, "1e6")],
)
def test_a_number_of_any_size_has_few_digits(value: float, text: str) -> None:
    assert number_text(value) == text
