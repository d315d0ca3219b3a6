from __future__ import annotations

import math

import pytest

from mhsa_cli.renderers.pictures.small_multiples import ROWS, quartile_curve, small_multiples
from tests.renderers.drawn import COLOR, SURFACES, golden, on
from tests.renderers.swept import CURVES, curve


def test_a_curve_is_the_median_and_the_quartiles_of_what_is_finite() -> None:
    losses = {2: [4.0, 1.0, math.nan, 2.0, 3.0, 5.0], 1: [7.0, math.inf], 3: [math.nan]}
    title, steps, *bands = quartile_curve("g", losses)
    assert (title, steps) == ("g", [1, 2, 3]) and [band[:2] for band in bands] == [[7, 3], [7, 2], [7, 4]]
    assert all(math.isnan(band[2]) for band in bands)  # a gap


def plain(curves: list = CURVES, width: int = 80, surface: str = "truecolor") -> list[str]:  # type: ignore[type-arg]
    return small_multiples(curves, on(width, surface)).plain.splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_panels_stay_as_they_were(width: int) -> None:
    golden(f"multiples-{width}", "\n".join(plain(width=width)))


def test_panels_in_ascii_stay_as_they_were() -> None:
    golden("multiples-80-ascii", "\n".join(plain(surface="ascii")))


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("width", [20, 33, 60, 80, 120, 200])
def test_panels_keep_within_their_width(width: int, surface: str) -> None:
    lines = small_multiples(CURVES, on(width, surface))
    assert all(line.cell_len <= width for line in lines)
    assert surface != "ascii" or all(line.plain.isascii() for line in lines)
    assert surface != "none" or not any(getattr(span.style, "color", None) for line in lines for span in line.spans)


@pytest.mark.parametrize(("width", "side"), [(40, 1), (59, 1), (60, 2), (79, 2), (80, 3), (119, 3), (120, 4), (200, 4)])
def test_as_many_side_by_side_as_there_is_room_for(width: int, side: int) -> None:
    titles = [f"g{i}" for i in range(5)]
    lines = plain([curve(title, 90) for title in titles], width)
    rows = [[word for word in line.split() if word in titles] for line in lines]
    assert [row for row in rows if row] == [titles[i : i + side] for i in range(0, 5, side)]


def panels(lines: list[str], count: int) -> list[list[str]]:
    """Cut the plots of the first row of panels out of a picture, each as its rows."""
    starts = [x for x, char in enumerate(lines[1 + ROWS]) if char == "└"]
    assert len(starts) == count
    ends = [*(start - 2 for start in starts[1:]), starts[-1] + (starts[1] - starts[0] - 2 if count > 1 else 400)]
    return [
        [line.ljust(400)[start + 1 : end] for line in lines[1 : 1 + ROWS]]
        for start, end in zip(starts, ends, strict=True)
    ]


def test_the_same_curve_looks_the_same_in_every_panel_and_a_slower_one_lies_to_the_right() -> None:
    one, two, three = panels(plain([curve("a", 90), curve("b", 90), curve("c", 200)]), 3)
    assert one == two != three
    high = [max(len(row.rstrip()) for row in panel[:2]) for panel in (one, three)]
    assert high[0] < high[1]


def test_the_line_falls_and_the_band_lies_on_both_its_sides() -> None:
    (panel,) = panels(plain([curve("a", 150)], 59), 1)
    tops = []
    for x in range(len(panel[0].rstrip())):
        rows = [y for y in range(ROWS) if 0x2800 < ord(panel[y][x]) <= 0x28FF]
        tops += rows[:1]
    assert tops == sorted(tops) and tops[0] == 0 and tops[-1] > 1
    middle = panel[2]
    marks = "".join("l" if 0x2800 < ord(c) <= 0x28FF else "b" if c == "░" else "" for c in middle)
    assert marks.strip("b").strip("l") == "" and marks[0] == marks[-1] == "b"


def test_without_spread_there_is_no_shade_beside_the_line() -> None:
    title, steps, median, _, _ = curve("a", 150)
    lines = plain([(title, steps, median, median, median)], 59)
    assert not any("░" in line for line in lines[: 1 + ROWS])
    assert any("░" in line for line in plain([curve("a", 150)], 59)[: 1 + ROWS])


def test_a_band_between_two_records_is_filled() -> None:
    (panel,) = panels(plain([("a", [0, 300], [1.0, 1.0], [0.1, 0.1], [10.0, 10.0])], 59), 1)
    full = len(panel[0].rstrip())
    assert full > 40 and all(len(row.rstrip()) == full and " " not in row.rstrip() for row in panel)


def test_a_band_is_not_drawn_over_a_gap() -> None:
    edges: list[list[float | None]] = [[0.1, 0.1, None, 0.1, 0.1], [10.0, 10.0, 10.0, 10.0, 10.0]]
    (panel,) = panels(plain([("a", [0, 100, 200, 300, 400], [None] * 5, *edges)], 59), 1)
    size = len(panel[0].rstrip())
    for row in panel:
        assert row[round(0.2 * size)] == row[round(0.8 * size)] == "░" and row[round(0.5 * size)] == " "


def test_gaps_are_gaps_and_said() -> None:
    title, steps, median, low, high = curve("a", 150)
    holed = [None if 100 <= s < 250 else math.nan if s >= 300 else v for s, v in zip(steps, median, strict=True)]
    blank = [None if v is None or math.isnan(v) else 1.0 for v in holed]
    lines = plain([(title, steps, holed, blank, blank)], 59)
    (panel,) = panels(lines, 1)
    size = len(lines[1 + ROWS].strip()) - 1
    column = round(175 / 360 * size)
    assert all(row[column] == " " for row in panel) and any(row[column // 3] != " " for row in panel)
    assert any("gap: median not finite" in line for line in lines)
    assert not any("gap: " in line for line in plain())


def test_zero_has_no_place_on_a_log_scale() -> None:
    lines = plain([("a", [1, 2, 3], [1.0, 0.0, 0.5], [1.0, 0.0, 0.5], [1.0, 0.0, 0.5])], 59)
    assert any("not on the log scale" in line for line in lines)


@pytest.mark.parametrize(
    "values", [[], [2.5], [0.4, 0.4], [None, None], [math.nan, math.inf], [1e-300, 1e300], [0.0], [1e-320], [1.7e308]]
)
def test_odd_curves_are_drawn_all_the_same(values: list[float | None]) -> None:
    steps = range(1, 1 + len(values))
    for width in (20, 80):
        lines = plain([("odd\x1b", steps, values, values, values)] * 2, width)
        assert len(lines) > ROWS and "odd\\x1b" in lines[0]


def test_no_curves_are_said() -> None:
    assert small_multiples([], COLOR).plain == "no curves recorded yet"
