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
    assert "position: share" not in text and "token: share" not in text and "eigen:" in text
    narrow = " ".join(circuits_table(LESSON, on(30)).plain.split())
    assert "hidden columns: position, token, mixed, eigen " in narrow
    assert "position: share" not in narrow and "direct: " in narrow
    bare = [HeadCircuits(0, h, None, None, None, None) for h in range(2)]
    empty = circuits_table(Circuits(0, bare, [], None, "1 row", ["The weights hold NaN."]), COLOR)
    assert len(empty) == 3 and empty[-1].plain == "The weights hold NaN."


def pairs_of(circuits: Circuits) -> list[list[str]]:
    return [line.split() for line in circuits_table(circuits, COLOR).plain.splitlines() if "-composition " in line]


def test_the_strongest_compositions_come_first_and_noise_is_not_drawn() -> None:
    rows = pairs_of(TWO)
    assert len(rows) == 8 and rows[0] == ["K-composition", "L1.H0", "L0.H0", "0.31"]
    figures = [float(row[-1]) for row in rows]
    assert figures == sorted(figures, reverse=True) and "8 of 27 " in circuits_table(TWO, COLOR).plain
    weak = [
        Composition(Head(0, 0), Head(1, 2), 0.004, -0.3, math.nan),
        Composition(Head(0, 1), Head(1, 2), math.nan, math.nan, 0.2),
    ]
    two = replace(TWO, compositions=weak)
    assert (
        pairs_of(two) == [["V-composition", "L1.H2", "L0.H1", "0.20"]] and "1 of 3 " in circuits_table(two, COLOR).plain
    )
    none, nothing = (circuits_table(replace(TWO, compositions=left), COLOR) for left in (weak[:1], []))
    assert pairs_of(replace(TWO, compositions=weak[:1])) == [] and len(none) == len(nothing) + 2  # a line says so


def test_wild_figures_and_names_break_nothing() -> None:
    heads = [HeadCircuits(0, 0, {"tok-tok": math.nan}, math.nan, math.inf, math.nan), HeadCircuits(0, 1, {}, 0, 0, 3e9)]
    wild = Circuits(1, heads, [], 1e300, "3 rows of \x1b[31mred", ["\x07 and \u202e"])
    picture = circuits_table(wild, on(60))
    assert "\x1b" not in picture.plain and "\x07" not in picture.plain and "+3e9" in picture.plain
    assert "nan" not in picture.plain and "inf" not in picture.plain
