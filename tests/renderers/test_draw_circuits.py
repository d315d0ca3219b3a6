from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mhsa_cli.records.circuits import Circuits, Composition, HeadCircuits
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import Claim, stored
from mhsa_cli.records.heads import HeadReport, HeadScore, Verdict
from mhsa_cli.renderers.pictures.circuits import circuits_table, share_groups
from mhsa_cli.text import Head
from tests.renderers.drawn import COLOR, SURFACES, golden, on

SHARES = {"tok-tok": 0.11, "tok-pos": 0.07, "pos-tok": -0.02, "pos-pos": 0.8, "bias-pos": 0.03, "bias-tok": 0.01}
LESSON = Circuits(
    360,
    [
        HeadCircuits(0, 0, SHARES, 0.546875, 1.0, 11.768, 0.241),
        HeadCircuits(0, 1, {"tok-tok": -0.004, "pos-pos": 1.004}, 0.0, -0.31, -0.0512, 0.0849),
        HeadCircuits(0, 2, None, 1.0, None, None),
    ],
    [],
    2.56e-5,
    "64 rows of copy from a stream that training never reads",
    [Claim("model", "no QK shares of constant scores", evidence={"heads": ["L0.H2"]})],
    null_top1=0.078,
    null_copying=0.56,
)
ROTATED = Circuits(
    360,
    [HeadCircuits(0, h, {"distance": 0.97 - h, "token-distance": 0.03 + h}, None, None, None) for h in range(2)],
    [],
    None,
    "64 rows of copy",
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
    [Claim("model", "no QK shares after a norm"), Claim("model", "direct logits hold the norm")],
    0.175,
)
SCORES = [HeadScore(0, h, {}, positionality=value) for h, value in enumerate((0.93, None, 0.0))]
REPORT = HeadReport(Verdict(None, None, None, None, [], ""), SCORES)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_pictures(width: int) -> None:
    drawn = [circuits_table(LESSON, on(width), report=REPORT), circuits_table(TWO, on(width))]
    drawn.append(circuits_table(ROTATED, on(width)))
    drawn.append(circuits_table(replace(TWO, composition_limit=0.4), on(width)))
    golden(f"circuits-{width}", "\n\n".join(one.plain for one in drawn))


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("width", [20, 33, 60, 80, 120])
def test_it_fits_and_is_ascii_everywhere(width: int, name: str) -> None:
    for circuits in (LESSON, TWO, ROTATED, replace(TWO, compositions=[])):
        picture = circuits_table(circuits, on(width, name), report=REPORT)
        assert picture.columns <= width and picture.plain.isascii()


def test_terms_are_added_up_by_what_they_depend_on() -> None:
    terms = {"tok-tok": 1, "tok-bias": 2, "bias-tok": 4, "tok-pos": 8, "pos-tok": 16, "pos-pos": 32, "pos-bias": 64}
    assert share_groups(terms | {"bias-pos": 128, "bias-bias": 0}) == {"position": 224, "token": 7, "mixed": 24}
    assert share_groups({"tok-tok": 1, "distance": 2}) == {"token": 1, "distance": 2}
    assert share_groups({"token-distance": 1, "distance": 2}) == {"mixed": 1, "distance": 2}


def test_a_head_in_a_line() -> None:
    lines = circuits_table(LESSON, COLOR, report=REPORT).plain.splitlines()
    figures = ["position", "token", "mixed", "copies", "eigen", "direct", "+-"]
    assert lines[1].split() == ["head", "positionality", *figures]
    assert lines[2].split() == ["L0.H0", "0.93", "83%", "12%", "5%", "55%", "+1.00", "+11.77", "0.24"]
    assert lines[3].split() == ["L0.H1", "100%", "0%", "0%", "-0.31", "-0.05", "0.08"]
    assert lines[4].split() == ["L0.H2", "0.00", "100%"]
    assert lines[5].split() == ["random", "8%", "+0.56"]
    rows = [line.split() for line in circuits_table(ROTATED, COLOR, report=None).plain.splitlines()]
    assert rows[1:4] == [["head", "distance", "mixed"], ["L0.H0", "97%", "3%"], ["L0.H1", "-3%", "103%"]]


def test_only_what_is_known_gets_a_column_and_a_meaning() -> None:
    text = circuits_table(TWO, COLOR).plain
    assert "position: share" not in text and "token: share" not in text and "eigen:" in text
    narrow = " ".join(circuits_table(LESSON, on(30)).plain.split())
    assert "hidden columns: position, token, mixed, eigen " in narrow
    assert "position: share" not in narrow and "direct: " in narrow
    bare = [HeadCircuits(0, h, None, None, None, None) for h in range(2)]
    empty = circuits_table(Circuits(0, bare, [], None, "1 row", [Claim("model", "no circuits")]), COLOR)
    assert len(empty) == 3 and empty[-1].plain == words(Claim("model", "no circuits"))


def pairs_of(circuits: Circuits) -> list[list[str]]:
    return [line.split() for line in circuits_table(circuits, COLOR).plain.splitlines() if "-composition " in line]


def test_only_compositions_above_the_limit_are_shown_the_strongest_first() -> None:
    rows = pairs_of(TWO)
    assert rows[0] == ["K-composition", "L1.H0", "L0.H0", "0.310"]
    figures = [float(row[-1]) for row in rows]
    assert figures == sorted(figures, reverse=True) and min(figures) == 0.18 and len(figures) == 8
    assert [len(pairs_of(replace(TWO, composition_limit=limit))) for limit in (0.0, 0.21, 0.31, None)] == [8, 5, 0, 0]
    unlike = [
        Composition(Head(0, 0), Head(1, 2), 0.16, -0.3, math.nan),
        Composition(Head(0, 1), Head(1, 2), math.nan, math.nan, 0.2),
    ]
    assert pairs_of(replace(TWO, compositions=unlike)) == [["V-composition", "L1.H2", "L0.H1", "0.200"]]


def test_wild_figures_and_names_break_nothing() -> None:
    heads = [HeadCircuits(0, 0, {"tok-tok": math.nan}, math.nan, math.inf, math.nan), HeadCircuits(0, 1, {}, 0, 0, 3e9)]
    wild = Circuits(1, heads, [], 1e300, "3 rows of \x1b[31mred", [stored("\x07 and \u202e")], math.nan, math.inf)
    picture = circuits_table(wild, on(60))
    assert "\x1b" not in picture.plain and "\x07" not in picture.plain and "+3e9" in picture.plain
    assert "nan" not in picture.plain and "inf" not in picture.plain
