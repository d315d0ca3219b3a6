"""Claims: each has its words, and what is said of heads on screen and in files comes of them alone."""

from __future__ import annotations

from typing import get_args

import pytest

from mhsa_cli.records.claim_words import WORDS, sentences, words
from mhsa_cli.records.claims import Claim, Predicate, stored


def test_every_predicate_has_words_and_every_words_a_predicate() -> None:
    assert set(get_args(Predicate)) == set(WORDS)


@pytest.mark.parametrize(("nats", "said"), [(0.25, "0.2500"), (-12.5, "-12.5000"), (2.5e7, "2.5e+07")])
def test_nats_of_a_model_that_exploded_are_written_short(nats: float, said: str) -> None:
    claim = Claim("model", "pattern matters", nats, evidence={"loss": nats, "without": nats})
    signed = said if nats < 0 else f"+{said}"
    assert f" {said} to {said} nats ({signed})" in words(claim)


def test_evidence_may_be_figures_by_distance_names_or_another_claim() -> None:
    gaps = Claim("L0.H0", "tested at other distances", 0.2, evidence={"gaps": {4: 0.2, 7: 0.91}})
    assert words(gaps).endswith("0.20 at 4, 0.91 at 7")
    others = Claim("L0.H0", "backup heads", 0.5, evidence={"others": ["L0.H1", "L2.H3"]})
    assert "(L0.H1, L2.H3)" in words(others)
    why = Claim("L0.H0", "effect not measured", evidence={"why": Claim("model", "large model")})
    assert words(why).endswith(f": {words(Claim('model', 'large model'))}")


def test_a_stored_sentence_comes_back_as_it_was() -> None:
    text = "{estimate} of {0} {{x}} it's [red]"
    assert words(stored(text)) == text and sentences([stored(text), stored("b.")]) == f"{text} b."
