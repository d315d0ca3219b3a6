from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mhsa_cli.records.thinning import Thinned, thin
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.text_lines import cut_middle
from mhsa_cli.renderers.kit.ticks import (
    Axis,
    linear_ticks,
    log_ticks,
    nice_step,
    short,
    step_text,
    tick_texts,
    with_unit,
)
from mhsa_cli.renderers.pictures import curve
from mhsa_cli.renderers.pictures.curve import Level, loss_curve
from tests.renderers.drawn import COLOR, SURFACES, evals, falling, golden, on

NAN, INF = math.nan, math.inf
GUESS = [Level(math.log(64), "chance 4.16")]


@pytest.mark.parametrize(
    ("name", "surface", "width", "log"),
    [
        ("curve-60", "none", 60, False),
        ("curve-80", "none", 80, False),
        ("curve-80-log", "none", 80, True),
        ("curve-40", "none", 40, False),
        ("curve-80-ascii", "ascii", 80, False),
        ("curve-60-blocks", "blocks", 60, True),
    ],
)
def test_pictures_stay_as_they_were(name: str, surface: str, width: int, log: bool) -> None:
    train = falling()
    lines = loss_curve([train, evals(train)], on(width, surface), levels=GUESS, log=log)
    golden(name, lines.plain)


def test_levels_near_each_other_keep_their_labels() -> None:
    train, levels = falling(), [Level(4.159, "chance 4.16"), Level(2.4, "unigram 2.40"), Level(2.3, "bi[gram] 2.30")]
    golden("curve-80-levels", loss_curve([train, evals(train)], on(80, "none"), levels=levels).plain)


@pytest.mark.parametrize("surface", ["none", "ascii", "truecolor"])
def test_several_runs_stay_as_they_were(surface: str) -> None:
    runs = [falling(233, name=f"copy-h{heads}", middle=50 + 11 * heads) for heads in (1, 2, 5)]
    golden(f"runs-80-{surface}", loss_curve(runs, on(80, surface), log=True).plain)


def test_without_colour_several_lines_are_told_apart_by_letters() -> None:
    runs = [falling(100, name="one", middle=20), falling(100, name="two", middle=60)]
    lines = loss_curve(runs, on(80, "none")).plain
    assert "aaa" in lines and "bbb" in lines and "a one" in lines and "b two" in lines
    colored = loss_curve(runs, COLOR)
    assert "aaa" not in colored.plain
    styles = {str(span.style) for line in colored for span in line.spans if "#" in str(span.style)}
    assert len(styles) == 2


_values = st.one_of(st.none(), st.floats(), st.floats(0, 9))
_series = st.builds(
    lambda name, values, start, role: Series(name, range(start, start + len(values)), values, role),
    st.text(max_size=40),
    st.lists(_values, max_size=40),
    st.integers(0, 10**7),
    st.sampled_from(["train", "eval"]),
)


@settings(max_examples=150)
@given(
    series=st.lists(_series, max_size=9),
    width=st.integers(20, 200),
    height=st.integers(2, 23),
    surface=st.sampled_from(sorted(SURFACES)),
    log=st.booleans(),
    levels=st.lists(st.builds(Level, st.floats(), st.text(max_size=50)), max_size=3),
    x_max=st.one_of(st.none(), st.integers(0, 10**6)),
    y_max=st.one_of(st.none(), st.floats()),
)
def test_any_content_draws_within_its_width(series, width, height, surface, log, levels, x_max, y_max) -> None:  # type: ignore[no-untyped-def]
    lines = loss_curve(
        series,
        on(width, surface),
        height=height,
        log=log,
        levels=levels,
        x_max=x_max,
        y_max=y_max,
    )
    assert len(lines) >= height + 3
    assert all(line.cell_len <= width and "\n" not in line.plain for line in lines)
    if surface == "ascii":
        own = "".join([*(one.name for one in series), *(level.label for level in levels)])
        assert all(char.isascii() or char in own for char in lines.plain)


@pytest.mark.parametrize(
    "values",
    [[50331647.5, 50331648.5], [1.0, 1e30, 2.0], [-1.7e308, 1.7e308], [5e-324, 1e308], [3.5], [], [NAN] * 3, [2.5] * 7],
    ids=str,
)
@pytest.mark.parametrize("log", [False, True])
def test_odd_curves_draw(values: list[float], log: bool) -> None:
    lines = loss_curve([Series("train", range(len(values)), values)], on(61), log=log)
    drawn = any("\u2800" < char <= "\u28ff" for line in lines[1:13] for char in line.plain[:45])
    assert drawn == any(math.isfinite(value) and (value > 0 or not log) for value in values)


def test_a_million_points_draw() -> None:
    count = 1_000_000
    lines = loss_curve([Series("train", range(count), [1.0] * (count - 1) + [7.0])], COLOR)
    assert "train 7.00" in lines.plain


@pytest.mark.parametrize(
    ("value", "note"), [(NAN, "NaN at step 26"), (INF, "infinite loss at step 26"), (None, "no value at step 26")]
)
def test_a_gap_has_a_marker_and_a_note(value: float | None, note: str) -> None:
    values = [4.0] * 25 + [value] + [2.0] * 13
    lines = loss_curve([Series("train", range(1, 40), values)], on(70))
    assert note in lines.plain and "last at step" not in lines.plain
    assert lines.plain.count("×") == 2  # one in the plot, one before the note
    whole = loss_curve([Series("train", range(1, 40), [4.0] * 25 + [3.0] + [2.0] * 13)], on(70))
    assert "×" not in whole.plain


def test_a_gap_is_not_bridged() -> None:
    line = [1.0] * 10 + [NAN] * 20 + [1.0] * 10
    row = next(r for r in loss_curve([Series("train", range(40), line)], on(83))[1:] if "┤" in r.plain)
    middle = row.plain[25:45]
    assert row.plain[8:12].strip() and not any("\u2800" < char <= "\u28ff" for char in middle)


def test_values_above_a_fixed_frame_are_said() -> None:
    series = [Series("train", range(1, 6), [4.0, 4.0, 99.5, 4.0, 1.0])]
    assert "above the frame: 99.50 at step 3" in loss_curve(series, on(60), y_max=8.0).plain
    assert "above the frame" not in loss_curve(series, on(60)).plain


def test_zero_has_no_place_on_a_log_scale_and_that_is_said() -> None:
    series = [Series("train", range(3), [4.0, 0.0, 1.0])]
    assert "not on the log scale" in loss_curve(series, on(60), log=True).plain
    assert "not on the log scale" not in loss_curve(series, on(60)).plain


@pytest.mark.parametrize("end", [0.5, 3.0, 6.0])
def test_labels_of_equal_ends_stand_in_rows_of_their_own(end: float) -> None:
    series = [Series(f"run-{i}", [0, 1], [float(i), end]) for i in range(7)]
    rows = loss_curve(series, on(90)).plain.splitlines()
    assert sorted(name for row in rows for name in row.split() if name.startswith("run-")) == [
        f"run-{i}" for i in range(7)
    ]
    assert max(row.count("run-") for row in rows) == 1


def test_more_labels_than_rows_become_a_legend() -> None:
    series = [Series(f"run-{i}", [0, 1], [3.0, 1.0]) for i in range(17)]
    lines = loss_curve(series, on(90), height=11)
    assert all(f"run-{i}" in lines.plain for i in range(17)) and len(lines) > 14


def test_below_56_columns_labels_stand_under_the_axis() -> None:
    train = falling(50)
    wide = loss_curve([train], on(56), levels=GUESS).plain.splitlines()
    narrow = loss_curve([train], on(55), levels=GUESS).plain.splitlines()
    assert "step" in wide[-1] and "chance 4.16" in "".join(wide[:13])
    assert "step" not in narrow[-1] and "chance 4.16" in narrow[-1]


def test_points_never_hide_the_whole_line() -> None:
    train = Series("train", range(200), [2.0] * 200)
    points = replace(train, name="eval", role="eval")
    row = max(loss_curve([train, points], COLOR)[1:13], key=lambda line: line.plain.count("●"))
    assert sum("\u2800" < char <= "\u28ff" for char in row.plain) > row.plain.count("●") > 10


def test_the_line_paints_over_the_baseline() -> None:
    series = [Series("train", [0, 100], [2.0, 2.0])]
    lines = loss_curve(series, COLOR, levels=[Level(2.0, "guessing")])
    assert "╌╌" not in lines.plain
    assert "╌╌" in loss_curve(series, COLOR, levels=[Level(1.0, "guessing")]).plain


@pytest.mark.parametrize("width", [40, 60])
def test_of_a_long_name_both_ends_stay(width: int) -> None:
    names = ["a-long-name-of-a-run-with-all-of-its-settings-" + end for end in ("1", "2", "2 eval")]
    shown = loss_curve([falling(name=name) for name in names], on(width, "none")).plain
    assert [line.count("a-lo") for line in shown.splitlines() if "a-lo" in line] == [1, 1, 1]
    assert all(any(end in line for line in shown.splitlines() if "a-lo" in line) for end in ("-1 ", "-2 ", "2 eval "))


def test_names_are_printed_as_they_are() -> None:
    names = ["[/x]", ":smile:", "[n_heads]", "[red]x"]
    lines = loss_curve([Series(name, [1, 2], [2.0, 1.0]) for name in names], on(120)).plain
    assert all(name in lines for name in names)
    odd = loss_curve([Series("\x1b[31mred\r\udce9", [1, 2], [2.0, 1.0])], on(120)).plain
    assert "\\x1b[31mred\\r\\xe9" in odd


@given(st.lists(st.one_of(st.floats(), st.none()), min_size=7, max_size=400), st.integers(7, 50))
def test_thinning_keeps_ends_peaks_and_gaps(values: list[float | None], limit: int) -> None:
    points = list(enumerate(values))
    kept = thin(points, limit)
    assert len(kept) <= max(limit, 5)
    assert repr(kept[0]) == repr(points[0]) and repr(kept[-1]) == repr(points[-1])
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})
    finite = [value for value in values if value is not None and math.isfinite(value)]
    left = [value for _, value in kept if value is not None and math.isfinite(value)]
    if finite:
        assert max(left) == max(finite) and min(left) == min(finite)
    assert any(v is None or not math.isfinite(v) for v in values) == (len(left) < len(kept))


@given(st.lists(st.one_of(st.floats(), st.none()), max_size=400), st.integers(1, 50))
def test_points_that_come_one_by_one_keep_ends_peaks_and_gaps(values: list[float | None], limit: int) -> None:
    points = list(enumerate(values))
    kept = Thinned(points, limit).points
    assert len(kept) <= 3 * limit + 2 + 100  # those of the stretch that is not full yet
    if len(points) <= limit + 2:
        assert repr(kept) == repr(points)
    assert repr(kept[:1] + kept[-1:]) == repr(points[:1] + points[-1:])
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})
    finite = [value for value in values if value is not None and math.isfinite(value)]
    left = [value for _, value in kept if value is not None and math.isfinite(value)]
    assert [min(left, default=0), max(left, default=0)] == [min(finite, default=0), max(finite, default=0)]
    assert any(v is None or not math.isfinite(v) for v in values) == (len(left) < len(kept))


def test_of_two_points_at_a_step_the_later_counts() -> None:
    assert Thinned([(1, 5.0), (1, 4.0), (2, 3.0), (3, 2.0), (3, 1.0)]).points == [(1, 4.0), (2, 3.0), (3, 1.0)]


def test_axes_place_values_by_hand() -> None:
    assert Axis(0.0, 8.0).place(2.0) == 0.25
    assert Axis(0.001, 10.0, log=True).place(0.1) == pytest.approx(0.5)
    assert Axis(-1.7e308, 1.7e308).place(0.0) == 0.5
    assert Axis(0.0, 2.0).place(5.0) == 1.0


def test_ticks_are_round() -> None:
    assert linear_ticks(0, 4.16, 5) == [0, 1, 2, 3, 4]
    assert linear_ticks(0, 360, 4) == [0, 100, 200, 300]
    assert linear_ticks(0, 0.0071, 3) == [0, 0.0025, 0.005]
    assert log_ticks(0.003, 4.16, 7) == [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]
    assert log_ticks(0.003, 4.16, 4) == [0.01, 0.1, 1]
    assert log_ticks(2.1, 3.3, 6) == [2.5, 3.0]
    assert nice_step(7.0, 3) == 2.5


def test_numbers_are_short() -> None:
    texts = [short(v) for v in (0.0025, 4.1589, 1234.5, 1e30, 2.5e-7, 0.0, 0.51, NAN, -INF)]
    assert texts == ["0.0025", "4.16", "1234", "1e30", "2.5e-7", "0", "0.510", "NaN", "-inf"]
    assert [step_text(s) for s in (360, 12_000, 2_500_000)] == ["360", "12k", "2.5M"]
    assert tick_texts([0.0, 2.5, 5.0]) == ["0.0", "2.5", "5.0"]


def test_the_lines_of_a_run_share_its_colour_whatever_they_are_called() -> None:
    """Of four lines of three runs, one of which has no training curve, none takes another run's colour."""
    runs = [("a", "train", "a"), ("z", "eval", "a"), ("a eval", "eval", "b"), ("a e", "train", "c")]
    series = [Series(name, [1, 2], [0.5, 0.25], role, run) for name, role, run in runs]
    styles = [line.style for line in curve._prepare(series, COLOR)]
    assert styles[0] == styles[1] and len(set(styles)) == 3


def test_a_number_in_units_has_three_digits_however_large_it_is() -> None:
    numbers = [9_999, 10_000, 999_499, 999_500, 9.99e20, 1e21, math.inf]
    assert [with_unit(number) for number in numbers] == ["9,999", "10k", "999k", "1M", "999E", "1e21", "inf"]


def test_a_name_cut_in_its_middle_keeps_each_accent_on_its_letter() -> None:
    text = "e\u0301ta\u0302/" * 4
    found = [cut_middle(text, width) for width in range(1, 18)]
    assert found[0] == "…" and found[4] == "e\u0301t…a\u0302/" and found[-1] == text
    assert all(cell_len(cut) == width for width, cut in enumerate(found[:16], 1)) and "…\u0302" not in "".join(found)


def test_without_colours_the_points_of_two_runs_are_told_apart() -> None:
    runs = [
        replace(one, name=f"{name} {one.role}", run=name)
        for name in ("p", "q")
        for one in (falling(), evals(falling()))
    ]
    text = loss_curve(runs, on(90, "none")).plain
    assert "●" not in text and all(
        f"{mark} {name}" in text for mark, name in zip("aAbB", ("p train", "p eval", "q train", "q eval"), strict=True)
    )
    assert "●" in loss_curve(runs[:2], on(90, "none")).plain and "●" in loss_curve(runs, on(90)).plain
