"""docs/reference/heads.md shows what hand-built heads really do, and names the limits that the code really has."""

from __future__ import annotations

import re

import pytest

from mhsa_cli.core.heads import (
    causes,
    head_claims,
    headline,
    history,
    labels,
    match,
    parts,
    probe,
    random_baseline,
    scores,
    shapley,
    teamwork,
    verdict,
)
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
        assert f"\n### {words.format(distance='d', period='P', token='t')}\n" in TEXT, words


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("lift >= {}", labels.LIFT),
        ("has less than {} of its weight there", labels.COMMON),
        ("above the {:.0%} percentile".replace("{:.0%}", "{}th"), round(100 * random_baseline.PERCENTILE)),
        ("at least {} heads of untrained", random_baseline.HEADS),
        ("at least {} heads with random queries", random_baseline.RANDOM_HEADS),
        ("cut to {} tokens", random_baseline.MAX_KEYS),
        ("exceeds theirs by at least {};", labels.MARGIN),
        ("shown if it is at least {} nats in size", causes.JOINT),
        ("it is at least {} nats and its interval", causes.ALONE),
        ("value is at least {}% of a joint effect", round(100 * causes.SHARE)),
        ("both cost less than {} of the smaller single effect", causes.CANCELS),
        ("a loss above {} of that at chance level", verdict.LEARNED),
        ("by at least {} of the held-out loss", verdict.OVERFIT),
        ("uniformity >= {}", labels.NEAR_UNIFORM),
        ("confidence >= {}", labels.FOCUSED),
        ("more than {} of its weight", head_claims.SINK),
        ("*positional* at {} or more", head_claims.POSITIONAL),
        ("*not positional* at {} or less", head_claims.CONTENT),
        ("least is {} or more it finds repeats there too", head_claims.WEAKER),
        ("below {} in total variation", scores.DEVIATION),
        ("Up to {} heads all", shapley.EXACT_TO),
        ("--more` draws {} orders", shapley.ORDERS),
        ("up to {}, until", shapley.MOST_ORDERS),
        ("over orders is {} of the joint delta", shapley.PRECISE),
        ("| {} or more | stands alone", labels.KEPT),
        ("shown to be at least {} |", labels.PART),
        ("at least {} of the weight left", parts.LEFT),
        ("and {} of all weight", parts.WEIGHT),
        ("sum to less than {} of what it costs together", teamwork.BACKED),
        ("plus {} of the smaller", teamwork.NEEDS),
        ("account for at least {} of what", headline.ACCOUNTED),
        ("uniform cost less than {:.0%} of it", headline.SUFFICES),
        ("on {} held-out rows of the run's task", probe.ROWS),
        ("always on the same {} rows", snapshots.ROWS),
        ("maps on {} shared rows", match.ROWS),
        ("on its own stream), {} times", match.DRAWS[0]),
        ("fewer rows and {} draws", match.DRAWS[1]),
        ("if it lies {} or more below", match.LEAST_GAIN),
        ("formed where it is at least {}, and", history.FORMED),
        ("less than {:.0%} of it was there from the start", history.HIGH),
        ("below {:.0%} of the final lift to the first", history.LOW),
    ],
)
def test_the_limits_in_the_docs_are_those_of_the_code(sentence: str, value: float) -> None:
    flat = re.sub(r"\s+", " ", TEXT)
    assert re.sub(r"\s+", " ", sentence.format(value)).strip() in flat
