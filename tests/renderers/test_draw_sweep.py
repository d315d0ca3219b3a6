from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.sweep import GroupStats, SweepReport
from mhsa_cli.renderers.pictures.sweep import interval, sweep_table
from mhsa_cli.renderers.pictures.sweep_words import ONE_SEED
from tests.renderers.drawn import COLOR, SURFACES, golden, on
from tests.renderers.swept import FAILED, FEWER, GROUPS, NONE, PAIRS, REPORT, SAID, TRIALS


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
    for part in [*SAID, FAILED, "15/16", "72–99%", "131 (118–141)", "0.0040", "4 x offset 6 (11 of 16)", "(6 of 15)"]:
        assert part in text
    assert "hidden columns" not in text


def test_a_line_of_the_table_by_hand() -> None:
    row = next(line for line in plain().splitlines() if "15/16" in line)
    assert row.split("  ")[-1] == "6 x offset 6; 2 x focused, no known pattern (6 of"
    assert row.split()[:7] == ["8", "15/16", "72–99%", "91", "(84–97)", "0.0024", "(0.0021–0.0029)"]


def test_what_never_got_there_is_said_in_words() -> None:
    text = plain()
    assert "288 (202–never)" in text and "never: goal not reached" in text
    one = next(line for line in text.splitlines() if "3/16" in line)
    assert one.split()[3] == "never"
    assert "never" not in plain(replace(REPORT, groups=GROUPS[2:], pairs=[]))


def test_intervals_are_whole_per_cent() -> None:
    assert interval((0.7168, 0.9887), "-") == "72-99%"
    assert interval((0.0, 1.0), "-") == "0-100%"


def test_one_seed_says_that_it_shows_no_spread() -> None:
    group = GroupStats({"model.n_heads": "4"}, 1, 1, 1, (0.207, 1.0), (131, 131, 131), (0.004, 0.004, 0.004))
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
    pairs = [replace(PAIRS[1], unfinished=100 + i, difference=FEWER if i % 10 == 0 else NONE) for i in range(60)]
    text = joined(plain(replace(REPORT, pairs=pairs)))
    assert [f"{i} excluded" in text for i in (100, 110, 150, 111)] == [True, True, True, False]
    assert "54 of 60 comparisons: " in text
    assert "of 60 comparisons of equal groups, about 3 would" in text
    twelve = joined(plain(replace(REPORT, pairs=pairs[:12])))
    assert "111 excluded" in twelve and "of 20 comparisons of equal groups" in twelve and "of 12 " not in twelve


def test_where_nothing_finished_nothing_is_compared() -> None:
    nobody = replace(PAIRS[0], difference=replace(NONE, n=0), unfinished=5)
    assert "no seed to compare" not in plain(replace(REPORT, pairs=[nobody, nobody]))
    assert "no seed to compare" in plain(replace(REPORT, pairs=[replace(nobody, unfinished=0)]))


def test_no_intervals_no_sentence_about_them() -> None:
    assert "95% CIs" not in plain(replace(REPORT, pairs=PAIRS[:1]))
    assert "95% CIs" in plain()


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


def test_steps_that_are_no_number_are_said_so() -> None:
    group = replace(GROUPS[0], steps_to_goal=(3.0, float("nan"), float("inf")))
    assert "NaN (3" in sweep_table(replace(REPORT, groups=[group], pairs=[]), on(120)).plain


def test_a_setting_that_was_not_trained_shows_no_figures() -> None:
    nothing = replace(GROUPS[0], models=0, k=0, n=0, wilson95=(0.0, 1.0))
    line = next(
        line for line in plain(replace(REPORT, groups=[nothing], pairs=[])).splitlines() if "not trained" in line
    )
    assert "%" not in line and "never" not in line
