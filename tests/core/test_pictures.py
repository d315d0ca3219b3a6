"""docs/heads.md shows what hand-built heads really do, and names the limits that the code really has."""

from __future__ import annotations

import re

import pytest

from mhsa_cli.core.heads import causal, history, labels, probe, random_baseline
from mhsa_cli.core.heads.targets import SCORES
from mhsa_cli.core.training import snapshots
from mhsa_cli.records.labels import TARGETS
from tests.core.pictures import DOCS, PICTURES, picture, shade, with_pictures

TEXT = DOCS.read_text(encoding="utf-8")


def test_the_pictures_in_the_docs_are_those_of_the_heads() -> None:
    assert with_pictures(TEXT) == TEXT, "run python tests/core/pictures.py"
    assert re.findall(r"<!-- picture: ([a-z ]+) -->\n```text", TEXT) == list(PICTURES)


def test_a_picture_by_hand() -> None:
    assert picture("previous").splitlines()[:4] == ["   a b c a d b c a", "a  █", "b  █ ·", "c  · █ ·"]
    assert [shade(w) for w in (0.0, 0.01, 0.3, 0.5, 0.7, 0.9, 1.0)] == list("·░░▒▓██")


def test_every_target_has_its_section() -> None:
    assert set(TARGETS) == set(SCORES)
    for words in TARGETS.values():
        assert f"\n### {words.format(distance='d')}\n" in TEXT, words


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("lift >= {}", labels.LIFT),
        ("has less than {} of its weight there", labels.COMMON),
        ("above the {:.0%} percentile".replace("{:.0%}", "{}th"), round(100 * random_baseline.PERCENTILE)),
        ("at least {} heads of untrained", random_baseline.HEADS),
        ("by less than {} nats", labels.JOINT),
        ("at least {} nats and two standard errors", labels.ALONE),
        ("at least {}%", round(100 * labels.SHARE)),
        ("uniformity >= {}", labels.NEAR_UNIFORM),
        ("confidence >= {}", labels.FOCUSED),
        ("more than {} of its weight", labels.SINK),
        ("Up to {} heads all", causal.EXACT_TO),
        ("too much, up to {} orders are drawn", causal.PERMUTATIONS),
        ("on {} held-out rows of the run's task", probe.ROWS),
        ("on {} rows that stay the same", snapshots.ROWS),
        ("with lift >= {}.\n", history.ONSET),
        ("crossing of lift {} to", history.LOW),
        ("to the first of {},", history.HIGH),
    ],
)
def test_the_limits_in_the_docs_are_those_of_the_code(sentence: str, value: float) -> None:
    flat = re.sub(r"\s+", " ", TEXT)
    assert re.sub(r"\s+", " ", sentence.format(value)).strip() in flat
