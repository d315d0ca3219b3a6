from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mhsa_cli.core import sweep_report
from mhsa_cli.core.power import seed_power
from mhsa_cli.records.claims import Status
from mhsa_cli.records.sweep import LEAST_VALUES, Measure, Median, OwnStats, PairStats, SweepReport, TrialResult
from mhsa_cli.renderers.pictures.sweep import interval, sweep_table
from mhsa_cli.renderers.pictures.sweep_labels import medians_table
from mhsa_cli.renderers.pictures.sweep_onsets import onsets_table
from mhsa_cli.renderers.pictures.sweep_pairs import pairs_table
from mhsa_cli.renderers.pictures.sweep_plan import too_few
from mhsa_cli.renderers.pictures.sweep_scores import own_scores_table
from mhsa_cli.renderers.pictures.sweep_words import NO_DIFFERENCE, ONE_SEED, PENDING, needed, pair_words
from tests.renderers.drawn import COLOR, SURFACES, golden, on
from tests.renderers.swept import FAILED, GROUPS, KEY, PAIRS, REPORT, TRIALS

INF = math.inf


def plain(report: SweepReport = REPORT, width: int = 120, surface: str = "truecolor") -> str:
    return sweep_table(report, on(width, surface)).plain


def joined(text: str) -> str:
    """The words of a picture, wherever its lines were broken."""
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_sweeps_stay_as_they_were(width: int) -> None:
    golden(f"sweep-{width}", plain(width=width))


def test_a_sweep_in_ascii_stays_as_it_was() -> None:
    golden("sweep-80-ascii", plain(width=80, surface="ascii"))


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("width", [20, 33, 60, 80, 120, 200])
def test_a_sweep_keeps_within_its_width(width: int, surface: str) -> None:
    lines = sweep_table(REPORT, on(width, surface))
    whole = {"· sweep/n_heads-8/seed-49", ". sweep/n_heads-8/seed-49"}  # the name of a trial is not broken
    assert all(line.cell_len <= width or line.plain in whole for line in lines)
    assert any("sweep/n_heads-8/seed-49" in line.plain.split() for line in lines)
    assert all("\n" not in line.plain for line in lines)
    assert surface != "ascii" or all(line.plain.isascii() for line in lines)
    assert surface not in ("none", "ascii") or not any(
        getattr(span.style, "color", None) for line in lines for span in line.spans
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_that_was_found_is_lost_in_a_narrow_terminal(width: int) -> None:
    text = joined(plain(width=width))
    for part in [
        *(pair_words(REPORT, pair) for pair in PAIRS[:-1]),
        FAILED,
        "15/16",
        "72–99%",
        "131 (118–141)",
        "0.0040",
        "4 x offset 6 (11 of 16)",
        "(6 of 15)",
    ]:
        assert joined(part) in text
    assert "hidden columns" not in text


def test_a_line_of_the_table_by_hand() -> None:
    row = next(line for line in plain().splitlines() if "15/16" in line)
    assert row.split("  ")[-1].startswith("6 x offset 6; 2 x focused, no known pattern (6 of")
    assert row.split()[:7] == ["8", "15/16", "72–99%", "91", "(84–97)", "0.0024", "(0.0021–diverged)"]


def test_steps_beyond_what_was_trained_are_more_than_that() -> None:
    text = plain()
    assert "288 (202–>352)" in text and ">: not reached by then" in text
    one = next(line for line in text.splitlines() if "3/16" in line)
    assert one.split()[3] == ">352" and "(>352" not in text
    assert ">" not in plain(replace(REPORT, groups=GROUPS[2:3], pairs=[], trials=[]))


def test_when_heads_formed_is_a_line_of_each_label() -> None:
    lines = [line.split("  ") for line in plain(replace(REPORT, pairs=[], trials=[])).splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["1", "offset 6", "7/16", "96 (80–112)"] in rows
    assert ["4", "previous token + induction (circuit)", "12/16", "415 (369–462)"] in rows
    assert ["offset 6", "16/16", "60"] in rows  # too few for an interval
    assert ["largest drop of the loss", "16/16", "104 (96–127)"] in rows


def test_intervals_are_whole_per_cent() -> None:
    assert interval((0.7168, 0.9887), "-") == "72-99%"
    assert interval((0.0, 1.0), "-") == "0-100%"


def test_one_seed_says_that_it_shows_no_spread() -> None:
    one = Median(131, None, None, 1)
    group = replace(
        GROUPS[2],
        models=1,
        k=1,
        n=1,
        steps_to_goal=one,
        final_loss=replace(one, estimate=0.004),
        label_sets=(),
        formed=(),
    )
    text = plain(SweepReport([group], [], TRIALS[:1], 0.9))
    assert ONE_SEED in text
    assert "131" in text and "131 (" not in text  # no quartiles of one number
    assert "labels" not in text  # no labels, no column of them
    assert ONE_SEED not in plain()


def test_two_keys_of_one_name_are_written_whole() -> None:
    group = GROUPS[0]
    both = replace(group, overrides={"a.size": "1", "b.size": "2", "train.lr": "1e-3"})
    head = plain(SweepReport([both], [], [], 0.875)).splitlines()[0]
    assert head.split()[:3] == ["a.size", "b.size", "lr"] and "steps to 87.5%" in head


def test_many_pairs_tell_only_the_differences_and_count_the_rest() -> None:
    pairs = [replace(PAIRS[6 if i % 10 == 0 else 4], unfinished=100 + i) for i in range(60)]
    text = joined(plain(replace(REPORT, pairs=pairs)))
    assert [f"{i} without a result" in text for i in (100, 110, 150, 111)] == [True, True, True, False]
    assert "54 of 60 comparisons: " in text and "over all 60 comparisons" in text
    twelve = joined(plain(replace(REPORT, pairs=pairs[:12])))
    assert "111 without a result" in twelve and "over all 12 comparisons" in twelve


def test_comparisons_that_were_not_made_are_not_called_without_difference() -> None:
    text = joined(plain(replace(REPORT, pairs=PAIRS[:1] * 15)))
    assert (
        "15 of 15 comparisons: too few seeds: an interval needs 6 seeds, a difference 10" in text
        and NO_DIFFERENCE not in text
    )
    waiting = [replace(PAIRS[1], status=Status.NOT_MEASURED, pending=True)] * 4
    text = joined(plain(replace(REPORT, pairs=[*PAIRS[:1] * 15, *waiting])))
    assert "15 of 19 comparisons: too few" in text and f"4 of 19 comparisons: {PENDING}" in text


def test_a_sweep_in_training_has_no_figures_yet() -> None:
    waiting = replace(GROUPS[2], k=3, n=5, pending=11)
    line = next(line for line in plain(replace(REPORT, groups=[waiting], pairs=[])).splitlines() if "3/5" in line)
    assert line.split()[1:4] == ["3/5,", "11", "to"] and "%" not in line and "131" not in line
    pair = replace(PAIRS[1], status=Status.NOT_MEASURED, pending=True)
    assert "not compared" in plain(replace(REPORT, pairs=[pair])) and "1.2 nats" not in plain(
        replace(REPORT, pairs=[pair])
    )


def test_where_nothing_finished_nothing_is_compared() -> None:
    nobody = replace(PAIRS[0], difference=Median(None, None, None, 0), unfinished=5)
    none = replace(PAIRS[2], p=1.0, status=Status.NOT_MEASURED, counts=((0, 0), (3, 5)))
    assert "compar" not in plain(replace(REPORT, pairs=[nobody, nobody, none]))
    assert "no seed to compare" in plain(replace(REPORT, pairs=[replace(nobody, unfinished=0)]))


def test_equal_success_is_left_to_the_table() -> None:
    assert "16 of 16" not in plain(replace(REPORT, pairs=PAIRS[8:], trials=[]))
    nearly = replace(PAIRS[8], counts=((5, 8), (4, 8)))  # Fisher's p is 1 here too
    assert "4 of 8" in plain(replace(REPORT, pairs=[nearly], trials=[]))
    assert "16 of 16" in plain(replace(REPORT, pairs=PAIRS[5:6]))


@pytest.mark.parametrize(
    ("middle", "mean", "status", "measure", "said"),
    [
        (Median(-47.2, -60.4, -33.6, 16), -46.0, Status.OPPOSITE, "steps", "47 fewer steps"),
        (Median(47.2, 33.6, 60.4, 16), None, Status.SHOWN, "steps", "47 more steps"),
        (Median(3.25, 0.25, INF, 16), None, Status.SHOWN, "steps", "3.2 more steps"),
        (Median(None, 42.0, INF, 16), None, Status.SHOWN, "steps", "at least 42 more steps"),
        (Median(None, -INF, -42.0, 16), None, Status.OPPOSITE, "steps", "at least 42 fewer steps"),
        (Median(-0.003, -0.00341, -0.0021, 16), -0.1, Status.OPPOSITE, "loss", "0.003 nats lower"),
        (Median(0.75, 0.5, 1.25, 16), 1.0, Status.SHOWN, "loss", "0.75 nats higher"),
        (Median(-20.0, -60, 1, 16), None, Status.NOT_SHOWN, "steps", f"{NO_DIFFERENCE}, -60 to +1 steps"),
        (Median(3.0, 1, 5, 16), None, Status.NOT_SHOWN, "steps", f"{NO_DIFFERENCE} over all 8 comparisons, +1 to +5"),
        (Median(-3.0, -5, 0, 16), None, Status.NOT_SHOWN, "loss", f"{NO_DIFFERENCE}, -5 to 0 nats"),
        (Median(None, -7.0, INF, 16), None, Status.NOT_SHOWN, "steps", f"{NO_DIFFERENCE}, at least -7 steps"),
        (Median(None, -INF, 7.0, 16), None, Status.NOT_SHOWN, "steps", f"{NO_DIFFERENCE}, at most +7 steps"),
        (Median(None, -INF, INF, 16), None, Status.NOT_SHOWN, "loss", f"{NO_DIFFERENCE}, too few seeds ended finite"),
        (Median(INF, INF, INF, 16), None, Status.SHOWN, "loss", "most runs with 2 heads diverge"),
        (Median(INF, 0.5, INF, 16), None, Status.SHOWN, "loss", "2 heads end at least 0.5 nats higher"),
        (Median(-INF, -INF, -INF, 16), None, Status.OPPOSITE, "steps", "most runs with 1 head diverge"),
        (Median(1.0, None, None, 1), 1.0, Status.NOT_MEASURED, "loss", ONE_SEED),
        (
            Median(1.0, None, None, 4),
            1.0,
            Status.NOT_MEASURED,
            "loss",
            "4 seeds are too few: an interval needs 6 seeds, a difference 9",
        ),
    ],
)
def test_a_difference_in_words(middle: Median, mean: float | None, status: Status, measure: Measure, said: str) -> None:
    assert said in pair_words(REPORT, PairStats(0, 1, KEY, measure, 0.01, 0.01, status, middle, mean))


def test_trials_that_did_not_finish_are_listed_with_their_reason() -> None:
    odd = replace(TRIALS[0], run="a\nb", status="interrupted", message="")
    many = [replace(TRIALS[0], run=f"r{i}", status="failed", message="x") for i in range(12)]
    lines = plain(replace(REPORT, trials=[odd, *many, TRIALS[1]])).splitlines()
    assert "× not finished: 1 interrupted, 12 failed of 14 trials" in lines
    assert "· a\\nb (seed 42): interrupted" in lines
    assert "· r8 (seed 42): x" in lines and "· r9 (seed 42): x" not in lines and lines[-1] == "  and 3 more"
    assert "not finished" not in plain(replace(REPORT, trials=TRIALS[:3]))


def test_a_sweep_of_one_group_and_of_nothing() -> None:
    alone = replace(GROUPS[2], overrides={})
    text = sweep_table(SweepReport([alone], [], [], 0.9), COLOR).plain
    assert text.splitlines()[0].split()[0] == "success" and "· 4 x offset 6 (11 of 16)" in text
    assert sweep_table(SweepReport([], [], [], 0.9), COLOR).plain.startswith("success")


def test_a_setting_that_was_not_trained_shows_no_figures() -> None:
    nothing = replace(GROUPS[0], models=0, k=0, n=0, wilson95=(0.0, 1.0))
    line = next(line for line in plain(replace(REPORT, groups=[nothing], pairs=[])).splitlines() if "no result" in line)
    assert "%" not in line and "never" not in line


@pytest.mark.parametrize("seeds", [3, 16])
def test_a_legend_names_intervals_where_there_are_some(seeds: int) -> None:
    few = seeds < LEAST_VALUES

    def cut(found: Median) -> Median:
        return replace(found, low=None, high=None) if few else found

    own = [OwnStats("peak", Median(0.5, 0.1, 0.9, 16), Median(0.5, 0.1, 0.9, 16), 0.1, 0.0, 0.2)]
    own = [replace(one, largest=cut(one.largest), smallest=cut(one.smallest)) for one in own]
    groups = [
        replace(
            group,
            steps_to_goal=cut(group.steps_to_goal),
            final_loss=cut(group.final_loss),
            formed=[replace(one, step=cut(one.step)) for one in group.formed],
            own_scores=own,
        )
        for group in GROUPS
    ]
    report = SweepReport(
        groups, [replace(pair, difference=pair.difference and cut(pair.difference)) for pair in PAIRS], [], 0.9
    )
    tables = (sweep_table, medians_table, pairs_table, onsets_table, own_scores_table)
    for drawn in (table(report, on(120)).plain for table in tables):
        assert ("(95% CI)" in drawn) is not few and "median" in drawn


def test_how_many_seeds_are_needed_is_said_alike_in_the_plan_and_in_the_report() -> None:
    cells = [{KEY: "1"}, {KEY: "2"}]
    plan = seed_power(cells, 5)
    trials = [
        TrialResult(f"r{seed}", cell, seed, "finished", 1.0 + seed, 0.1, None, 1.0)
        for cell in (0, 1)
        for seed in (1, 2)
    ]
    report = sweep_report.report(cells, trials, 0.9)
    assert plan is not None
    said = needed(plan.least_for_ranks)
    assert "6" in said and "7" in said and all(said in str(too_few(seed_power(cells, n))) for n in (2, 5))
    assert said in joined(plain(report)) and said in pair_words(report, report.pairs[0])
    at_six = PairStats(0, 1, KEY, "loss", 0.09, 0.03, Status.NOT_SHOWN, Median(1.0, 0.5, 2.0, 6), 1.0)
    assert "6 seeds can show none, 7 can" in pair_words(replace(report, pairs=[at_six] * 3), at_six)
