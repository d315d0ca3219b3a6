"""Claims: each has its words, and what is said of heads on screen and in files comes of them alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from typing import get_args
from unittest import mock

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import causal, probe, report
from mhsa_cli.core.heads.random_baseline import Limits
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.records.claim_words import NOT_SHOWN, WORDS, sentences, words
from mhsa_cli.records.claims import LEVEL, Claim, Predicate, Status, judge, stored, z_value
from mhsa_cli.records.labels import TARGETS
from mhsa_cli.runs.codec import ContentError, claim_from_plain, plain
from tests.core.handmade import Attended, Period, handmade, induction


def test_every_predicate_has_words_and_every_words_a_predicate() -> None:
    assert set(get_args(Predicate)) == set(WORDS)


@pytest.mark.parametrize(("nats", "said"), [(0.25, "0.2500"), (-12.5, "-12.5000"), (2.5e7, "2.5e+07")])
def test_nats_of_a_model_that_exploded_are_written_short(nats: float, said: str) -> None:
    claim = Claim("model", "attention harmful", nats, evidence={"loss": nats, "without": nats})
    signed = said if nats < 0 else f"+{said}"
    assert f" {said} to {said} nats ({signed})" in words(claim)


@pytest.mark.parametrize("predicate", ["no effect shown", "single effects", "only output"])
def test_a_figure_that_rounds_to_zero_has_no_sign_of_its_own(predicate: Predicate) -> None:
    def said(value: float) -> str:
        losses = {"loss": 1.0, "without": 1.0, "task": "copy", "singles": {"L0.H1": value}}
        return words(Claim("model", predicate, value, reference=0.05, evidence=losses))

    assert said(-1e-6) == said(1e-6) == said(0.0) != said(-0.2)


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


# Judging figures

ESTIMATES = (0.0, 1e-9, 0.004, 0.01, 0.02, 0.3, 5.0, math.inf)
ERRORS = (None, 0.0, 0.001, 0.01, 0.1, math.inf)
FLIPPED = {Status.SHOWN: Status.OPPOSITE, Status.OPPOSITE: Status.SHOWN, Status.NOT_SHOWN: Status.NOT_SHOWN}


def test_the_opposite_figure_shows_the_opposite() -> None:
    found = set()
    for x, se, limit, looks in product(ESTIMATES, ERRORS, (0.0, 0.01, 0.2), (1, 4, 100)):
        status = judge(x, se, limit, looks)
        assert judge(-x, se, limit, looks) is FLIPPED[status] and status is not Status.OPPOSITE
        found.add(status)
    assert found == {Status.SHOWN, Status.NOT_SHOWN}


@pytest.mark.parametrize("varied", ["size", "se", "limit", "looks"])
def test_more_is_shown_by_a_larger_figure_a_smaller_error_a_lower_limit_and_fewer_looks(varied: str) -> None:
    values = {"size": ESTIMATES[::-1], "se": ERRORS, "limit": (0.0, 0.01, 0.2), "looks": (1, 2, 4, 100)}
    changed = False
    for x, se, limit, looks in product(*({**values, varied: (None,)}[name] for name in values)):
        given = {"size": x, "se": se, "limit": limit, "looks": looks}
        row = []
        for value in values[varied]:
            use = {**given, varied: value}
            row.append(judge(use["size"], use["se"], use["limit"], use["looks"]) is Status.SHOWN)
        assert all(one or not other for one, other in pairwise(row)), (varied, given, row)
        changed = changed or len(set(row)) == 2
    assert changed


def test_what_is_no_number_shows_nothing() -> None:
    assert judge(None, None) is judge(None, 0.1) is Status.NOT_MEASURED
    assert judge(0.0, None) is judge(0.0, 0.0, 0.0, 5) is judge(-0.0, None) is Status.NOT_SHOWN
    for x, se in ((math.nan, 0.1), (math.nan, None), (1.0, math.nan), (math.inf, math.nan), (math.inf, math.inf)):
        assert judge(x, se) is Status.NOT_SHOWN


def test_a_figure_is_judged_by_its_interval_over_all_looks() -> None:
    """Two-sided, at LEVEL in all: 1.96 standard errors for one figure, 2.50 for four (0.0125 in two tails)."""
    assert (z_value(1), z_value(4)) == (pytest.approx(1.959964, abs=1e-6), pytest.approx(2.497705, abs=1e-6))
    assert z_value(0) == z_value(1)
    for looks in (1, 3, 40):
        tail = math.erfc(z_value(looks) / math.sqrt(2))  # of both sides
        assert tail * looks == pytest.approx(LEVEL)
        edge = z_value(looks) * 0.25
        assert judge(edge, 0.25, 0.0, looks) is Status.SHOWN
        assert judge(0.999 * edge, 0.25, 0.0, looks) is Status.NOT_SHOWN


# What reports say


def tiny(*settings: str) -> tuple[TransformerLM, Task]:
    """An untrained model of a config, and its task."""
    config = load_config(None, [*settings], files=False)
    task = build_task(config.task)
    return build_model(config, task), task


@cache
def said() -> list[Claim]:
    """Every claim of a handful of reports: solved, redundant, untrained, harmful, large, broken, and custom models."""
    one, two, three = Attended("previous"), Attended("induction"), Attended("first")
    harmful = handmade("previous", "first", loud=20.0)
    with torch.no_grad():
        harmful.attention[0].out_proj.weight[:, harmful.attention[0].d_head :] *= -0.3
    broken = handmade("first")
    with torch.no_grad():
        broken.lm_head.weight[0, 0] = math.nan
    untrained, copy = tiny("task.name=copy", "vocab_size=13", "seq_len=8", "d_model=12", "n_heads=3")
    low = Limits(dict.fromkeys(TARGETS, 0.1), dict.fromkeys(range(20), 0.1))
    with mock.patch.object(probe, "ROWS", 7), mock.patch.object(report, "null_limits", lambda *_: low):
        reports = [
            head_report(induction(), two, 3),
            head_report(handmade("previous", "previous", "uniform", loud=60.0, idle=[2]), one, 3),
            head_report(handmade("first", "self"), three, 3),
            head_report(harmful, one, 3),
            head_report(handmade("period 6"), Period(6), 3),
            head_report(untrained, copy, 3),
            head_report(broken, three, 3),
        ]
        with mock.patch.object(causal, "MAX_FLOPS", 0.0):
            reports.append(head_report(handmade("previous"), one, 3))
    found = [claim for each in reports for claim in each.verdict.claims]
    found += [each.verdict.withheld for each in reports if each.verdict.withheld is not None]
    return found + [claim for each in reports for head in each.heads for claim in head.evidence]


def test_every_claim_of_a_report_has_words_for_every_status() -> None:
    """A law: the figures that the code gives are those that the words need."""
    ids = {claim.predicate for claim in said()}
    assert len(ids) > 30 and ids >= {"solved by", "share", "kept", "effect", "not learned", "weights not finite"}
    for claim in said():
        texts = {status: words(replace(claim, status=status)) for status in Status}
        assert all(text and "{" not in text and "None" not in text for text in texts.values()), claim
        assert words(claim) == texts[claim.status]
        if NOT_SHOWN.get(claim.predicate) is not None:
            assert texts[Status.NOT_SHOWN] != texts[Status.SHOWN]


def test_claims_come_back_from_json_with_their_status_and_figures() -> None:
    for claim in said():
        written = json.loads(json.dumps(plain(claim)))
        back = claim_from_plain(written)
        assert (back.predicate, back.subject, back.status) == (claim.predicate, claim.subject, claim.status)
        assert (back.estimate, back.se, back.reference) == (claim.estimate, claim.se, claim.reference)
        assert words(back) == words(claim) == written["text"]
        assert json.loads(json.dumps(plain(back))) == written and claim_from_plain(written) == back


def test_a_claim_of_another_version_is_read_as_its_text() -> None:
    """An unknown id, a text alone, and figures that are missing or of another kind."""
    claim = Claim("L0.H0", "content-based", 0.5, evidence={"gaps": {4: 0.5}})
    written = json.loads(json.dumps(plain(claim)))
    assert claim_from_plain(written).status is Status.SHOWN
    for change in ({"id": "of tomorrow"}, {"evidence": {}}, {"evidence": {"gaps": {"4": "x"}}}):
        assert claim_from_plain({**written, **change}) == stored(written["text"])
    assert claim_from_plain("as ever") == stored("as ever")


@pytest.mark.parametrize(
    ("key", "value"),
    [("status", "perhaps"), ("status", None), ("estimate", "0.5"), ("se", [1]), ("subject", 3), ("text", None)],
)
def test_a_claim_of_the_wrong_kind_is_damage(key: str, value: object) -> None:
    written = plain(Claim("L0.H0", "uniformity", 0.5))
    with pytest.raises(ContentError) as error:
        claim_from_plain({**written, key: value})
    assert error.value.where == key
