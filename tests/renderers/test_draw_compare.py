from __future__ import annotations

from dataclasses import replace

import pytest

from mhsa_cli.records.claims import Status
from mhsa_cli.records.heads import Matching, Untested
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.pictures.compare import (
    beside,
    differing_settings,
    matched_heads,
    matching_sentence,
)
from mhsa_cli.text import Head
from tests.renderers.drawn import COLOR, SURFACES, golden, on

NAMES = ("copy-h4", "a/long\nname")
MATCHING = Matching(
    pairs=[(Head(0, 0), Head(0, 2), 0.0312), (Head(0, 1), Head(1, 0), 0.5)],
    unmatched_first=[],
    unmatched_second=[Head(0, 1), Head(1, 3)],
    cost=0.2656,
    inputs="32 rows of copy, 12 tokens each",
    status=Status.SHOWN,
    null_cost=0.3772,
    p_value=0.025,
    draws=39,
)
LABELS = ({(0, 0): "previous token"}, {(0, 2): "previous token", (1, 0): "induction pattern, no effect shown"})
SETTINGS = (
    {"model.n_heads": 4, "model.n_kv_heads": None, "train.betas": [0.9, 0.999], "train.lr": 0.005, "task.path": "a b"},
    {"model.n_heads": 8, "model.n_kv_heads": 2, "train.betas": [0.9, 0.99], "train.lr": 1e-05, "model.bias": False},
)


def picture(width: int, surface: str = "truecolor") -> Lines:
    there = on(width, surface)
    return stacked(
        [
            differing_settings(*SETTINGS, NAMES, there),
            beside("final", [["eval loss", "0.0009", "0.0019"]], NAMES, there),
            matched_heads(MATCHING, LABELS, NAMES, there),
        ]
    )


@pytest.mark.parametrize("width", [60, 80])
def test_comparisons_stay_as_they_were(width: int) -> None:
    golden(f"compare-{width}", picture(width).plain)


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("width", [20, 33, 60, 120, 200])
def test_a_comparison_keeps_within_its_width(width: int, surface: str) -> None:
    lines = picture(width, surface)
    assert all(line.cell_len <= width and "\n" not in line.plain for line in lines)
    assert surface != "ascii" or all(line.plain.isascii() for line in lines)


def test_settings_are_written_as_in_a_config_and_a_missing_one_is_blank() -> None:
    lines = differing_settings(*SETTINGS, ("a", "b"), COLOR).plain.splitlines()
    assert [line.split() for line in lines] == [
        ["setting", "a", "b"],
        ["model.n_heads", "4", "8"],
        ["model.n_kv_heads", "null", "2"],
        ["train.betas", "[0.9,", "0.999]", "[0.9,", "0.99]"],
        ["train.lr", "0.005", "1e-05"],
        ["task.path", "a", "b"],
        ["model.bias", "false"],
    ]
    assert lines[-1].endswith("false") and len(lines[-1]) == len(lines[0])  # under b
    assert len(differing_settings({}, {}, NAMES, COLOR)) == 1


def test_columns_of_labels_are_there_only_with_labels() -> None:
    def drawn(labels: tuple[dict[tuple[int, int], str], ...]) -> list[str]:
        return matched_heads(MATCHING, (labels[0], labels[1]), ("a", "b"), on(90)).plain.splitlines()

    assert drawn(LABELS)[1].split() == ["a", "pattern", "b", "pattern", "cost"]
    assert drawn(LABELS)[2].split() == ["L0.H0", "previous", "token", "L0.H2", "previous", "token", "0.03"]
    bare = drawn(({}, {}))
    assert bare[1].split() == ["a", "b", "cost"] and bare[3].split() == ["L0.H1", "L1.H0", "0.50"]
    assert "unmatched in b: L0.H1, L1.H3" in bare and not any("unmatched in a" in line for line in bare)


SENTENCES = [
    MATCHING,
    replace(MATCHING, null_cost=0.2712),  # would be written like the cost
    replace(MATCHING, cost=0.41, status=Status.NOT_SHOWN, p_value=0.1),
    replace(MATCHING, cost=0.0, null_cost=0.0031, status=Status.NOT_SHOWN),
    replace(MATCHING, pairs=MATCHING.pairs[:1], unmatched_second=[], cost=0.0312),
    *(
        replace(MATCHING, status=Status.NOT_MEASURED, null_cost=None, p_value=None, draws=0, untested=reason)
        for reason in Untested
    ),
]


def test_what_a_cost_shows_in_words() -> None:
    golden("compare-sentences", "\n".join(map(matching_sentence, SENTENCES)))
