from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mhsa_cli.records.heads import Circuits, Composition, HeadCircuits
from mhsa_cli.renderers.pictures.circuits import circuits_table, share_groups
from mhsa_cli.text import Head
from tests.renderers.drawn import COLOR, SURFACES, golden, on

SHARES = {"tok-tok": 0.11, "tok-pos": 0.07, "pos-tok": -0.02, "pos-pos": 0.8, "bias-pos": 0.03, "bias-tok": 0.01}
LESSON = Circuits(
    360,
    [
        HeadCircuits(0, 0, SHARES, 0.546875, 1.0, 11.768),
        HeadCircuits(0, 1, {"tok-tok": -0.004, "distance": 1.004}, 0.0, -0.31, -0.0512),
        HeadCircuits(0, 2, None, 1.0, None, None),
    ],
    [],
    2.56e-5,
    "64 rows of copy from a stream that training never reads",
    ["No shares of position and token for L0.H2: the variance of the score is zero or not finite."],
)
PAIRS = [
    Composition(Head(0, w), Head(1, r), 0.1 * w + 0.02 * r, 0.31 - 0.1 * w - 0.03 * r, -0.02)
    for w in range(3)
    for r in range(3)
]
TWO = Circuits(
    1200,
    [HeadCircuits(layer, h, None, 0.25 * h, 0.5, 1.5 * layer - h) for layer in range(2) for h in range(3)],
    PAIRS,
    0.00026,
    "8 rows of copy from a stream that training never reads",
    [
        "No shares of position and token: behind a norm the score is not a sum of their terms.",
        "Direct logits hold the final norm's measured scale fixed.",
    ],
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_pictures(width: int) -> None:
    one, two = (circuits_table(c, on(width)) for c in (LESSON, TWO))
    golden(f"circuits-{width}", f"{one.plain}\n\n{two.plain}")


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("width", [20, 33, 60, 80, 120])
def test_it_fits_and_is_ascii_everywhere(width: int, name: str) -> None:
    for circuits in (LESSON, TWO, replace(TWO, compositions=[])):
        picture = circuits_table(circuits, on(width, name))
        assert picture.columns <= width and picture.plain.isascii()


def test_terms_are_added_up_by_what_they_depend_on() -> None:
    terms = {"tok-tok": 1, "tok-bias": 2, "bias-tok": 4, "tok-pos": 8, "pos-tok": 16, "pos-pos": 32, "pos-bias": 64}
    assert share_groups(terms | {"bias-pos": 128, "bias-bias": 256, "distance": 512}) == {
        "position": 992,
        "token": 7,
        "mixed": 24,
    }


def test_a_head_in_a_line() -> None:
    lines = circuits_table(LESSON, COLOR).plain.splitlines()
    assert lines[1].split() == ["head", "position", "token", "mixed", "copies", "eigen", "direct"]
    assert lines[2].split() == ["L0.H0", "83%", "12%", "5%", "55%", "+1.00", "+11.77"]
    assert lines[3].split() == ["L0.H1", "100%", "0%", "0%", "0%", "-0.31", "-0.05"]
    assert lines[4].split() == ["L0.H2", "100%"]


def test_only_what_is_known_gets_a_column_and_a_meaning() -> None:
    text = circuits_table(TWO, COLOR).plain
    assert "\nposition:" not in text and "\ntoken:" not in text and "eigen:" in text
    narrow = circuits_table(LESSON, on(30)).plain
    assert "no room for: position, token,\nmixed, eigen" in narrow and "position:" not in narrow and "direct:" in narrow
    bare = [HeadCircuits(0, h, None, None, None, None) for h in range(2)]
    empty = circuits_table(Circuits(0, bare, [], None, "1 row", ["The weights hold NaN."]), COLOR)
    assert empty.plain.splitlines()[1:] == ["no circuit of these heads is known", "The weights hold NaN."]


def test_the_strongest_compositions_come_first_and_noise_is_not_told() -> None:
    lines = [line for line in circuits_table(TWO, COLOR).plain.splitlines() if " reads " in line]
    assert len(lines) == 8
    assert lines[0] == "L1.H0 reads L0.H0 through its keys: 0.31 above chance"
    figures = [float(line.split()[6]) for line in lines]
    assert figures == sorted(figures, reverse=True)
    assert "the strongest 8 of 27 figures" in circuits_table(TWO, COLOR).plain
    weak = [
        Composition(Head(0, 0), Head(1, 2), 0.004, -0.3, math.nan),
        Composition(Head(0, 1), Head(1, 2), math.nan, math.nan, 0.2),
    ]
    text = circuits_table(replace(TWO, compositions=weak), COLOR).plain
    assert text.count(" reads ") == 1 and "L1.H2 reads L0.H1 through its values: 0.20 above chance" in text
    assert "the strongest 1 of 3 figures" in text
    none = circuits_table(replace(TWO, compositions=weak[:1]), on(120)).plain
    assert "no head reads what an earlier one writes more than random heads of this shape would" in none


def test_wild_figures_and_names_break_nothing() -> None:
    heads = [HeadCircuits(0, 0, {"tok-tok": math.nan}, math.nan, math.inf, math.nan), HeadCircuits(0, 1, {}, 0, 0, 3e9)]
    wild = Circuits(1, heads, [], 1e300, "3 rows of \x1b[31mred", ["\x07 and \u202e"])
    picture = circuits_table(wild, on(60))
    assert "\x1b" not in picture.plain and "\x07" not in picture.plain and "+3.0e+09" in picture.plain
    assert "nan" not in picture.plain and "inf" not in picture.plain
