"""Tables of patched paths and heads, the logit lens, direct logits and a paper's scores, from hand-made records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.claim_words import words
from mhsa_cli.records.claims import unmeasured
from mhsa_cli.records.heads import EMBEDDING, ActivationEffect, Mlp, PathEffect, Together
from mhsa_cli.records.inspection import DirectLogits, LensStep, LogitLens, PaperScore, PaperScores
from mhsa_cli.renderers.kit.text_lines import stacked
from mhsa_cli.renderers.pictures.patching import (
    activation_table,
    direct_table,
    lens_table,
    paper_table,
    path_table,
)
from mhsa_cli.text import Head
from tests.renderers.drawn import COLOR, SURFACES, golden, on

PATHS = [
    PathEffect(Head(0, 1), Head(1, 2), "k", 13.1628, 1.0343, 3.6963, 64),
    PathEffect(Head(0, 1), Together((Head(1, 0), Head(1, 2))), "v", -0.00004, 0.0001, 0.5, 64),
    PathEffect(Together((EMBEDDING, Mlp(0))), None, None, -0.25, 0.01, 0.0, 64),
]
HEADS = [ActivationEffect(0, 1, 13.1178, 1.0431, 64), ActivationEffect(1, 2, -0.2401, 0.0837, 64)]
LENS = LogitLens(
    [LensStep(None, 3.9862, 0.02), LensStep(0, 3.9239, 0.024), LensStep(1, 0.0, 1.0)], "rows", 3.4657, 1 / 32
)
DIRECT = DirectLogits(
    [0, 0, 4, 0, 1, 3],
    {Head(0, 1): [None, None, 0.125, None, -0.002, 1.0], Head(1, 0): [None, None, 6.5, None, 1.0, -2.0]},
    "rows",
    [unmeasured("direct logits hold the norm")],
)
PAPER = PaperScores([PaperScore(0, 1, 0.034, 0.03125), PaperScore(1, 2, 0.986, 0.97)], 0.052, 0.0625)
TABLES = {
    "paths": lambda surface: path_table(PATHS, surface),
    "heads": lambda surface: activation_table(HEADS, surface),
    "lens": lambda surface: lens_table(LENS, surface),
    "direct": lambda surface: direct_table(DIRECT, surface),
    "paper": lambda surface: paper_table(PAPER, surface),
}


def test_tables_at_80_columns() -> None:
    golden("patching-80", stacked(draw(COLOR) for draw in TABLES.values()).plain)


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("width", [40, 60, 120])
def test_it_fits_and_is_ascii_where_it_must_be(width: int, name: str) -> None:
    for draw in TABLES.values():
        picture = draw(on(width, name))
        assert picture.columns <= width and (picture.plain.isascii() or "ascii" not in name)


def row(text: str, first: str) -> list[str]:
    """Return the cells of the line that begins with `first`."""
    (found,) = [line.split() for line in text.splitlines() if line.split()[:1] == [first]]
    return found


def test_a_path_is_drawn_with_its_figures() -> None:
    text = path_table(PATHS, COLOR).plain
    assert [line.split()[-3:] for line in text.splitlines()[1:4]] == [
        ["+13.1628", "1.0343", "3.6963"],
        ["0.0000", "0.0001", "0.5000"],
        ["-0.2500", "0.0100", "0.0000"],
    ]
    assert [line.split()[:3] for line in text.splitlines()[1:4]] == [
        ["L0.H1", "→", "L1.H2.k"],
        ["L0.H1", "→", "L1.H0+L1.H2.v"],
        ["embedding+L0.MLP", "→", "logits"],
    ]


def test_the_lens_gives_the_change_by_each_layer() -> None:
    text = lens_table(LENS, COLOR).plain
    assert row(text, "embedding") == ["embedding", "3.9862", "2.0%"]
    assert row(text, "L0") == ["L0", "3.9239", "-0.0623", "2.4%"]
    assert row(text, "L1") == ["L1", "0.0000", "-3.9239", "100.0%"]


def test_positions_without_a_scored_query_are_left_out_and_many_are_averaged() -> None:
    text = direct_table(DIRECT, COLOR).plain
    assert [line.split() for line in text.splitlines()[:4]] == [
        ["query", "L0.H1", "L1.H0"],
        ["2", "+0.12", "+6.50"],
        ["4", "0.00", "+1.00"],
        ["5", "+1.00", "-2.00"],
    ]
    long = DirectLogits([0, *[n % 3 + 1 for n in range(47)]], {Head(0, 0): [None, *map(float, range(47))]}, "rows")
    lines = [line.split() for line in direct_table(long, COLOR).plain.splitlines()]
    assert lines[1] == ["1", "to", "2", "+0.67"]  # (1 * 0 + 2 * 1) / 3
    assert lines[24] == ["47", "+46.00"] and lines[25][0] == "contribution"
    none = replace(DIRECT, heads={}, notes=[unmeasured("no direct logits")])
    assert direct_table(none, COLOR).plain == words(unmeasured("no direct logits"))
    assert direct_table(replace(DIRECT, counts=[0] * 6, notes=[]), COLOR).plain == ""


def test_a_papers_scores_stand_over_those_of_untrained_heads() -> None:
    text = paper_table(PAPER, COLOR).plain
    assert row(text, "L1.H2") == ["L1.H2", "0.99", "97%"] and row(text, "untrained")[:3] == ["untrained", "0.05", "6%"]
    bare = replace(PAPER, heads=[replace(head, copies=None) for head in PAPER.heads], copies_null=None)
    assert "%" not in paper_table(bare, COLOR).plain
