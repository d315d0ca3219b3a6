"""Small, long, broken and unusual models: a verdict, never a crash or a non-finite figure."""

from __future__ import annotations

import math
import re
from dataclasses import asdict

import pytest
import torch

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.heads import probe
from mhsa_cli.core.heads.probe import rows_that_fit
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.copy import Copy
from mhsa_cli.core.tasks.repeat import Repeat
from mhsa_cli.records.claim_words import sentences
from mhsa_cli.records.heads import GapLimit, HeadReport
from tests.core.noise import Noise as Unscored
from tests.core.reference import redraw
from tests.core.test_head_report import numbers


class Noise(Unscored):
    """Random rows and answers, with their chance level."""

    def __init__(self, vocab_size: int, seq_len: int) -> None:
        super().__init__(vocab_size, seq_len)
        self.chance_loss, self.chance_accuracy = math.log(vocab_size), 1 / vocab_size


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ROWS", 5)


def model_for(task: Task, **settings: object) -> TransformerLM:
    config = ModelConfig(**{"d_model": 12, "n_heads": 3} | settings)  # type: ignore[arg-type]
    model = TransformerLM(config, vocab_size=task.vocab_size, max_seq_len=task.seq_len)
    redraw(model, 1)
    return model


def sound(found: HeadReport, heads: int) -> HeadReport:
    """Every figure is a number, every text is there."""
    assert all(math.isfinite(x) for x in numbers(asdict(found)))
    assert len(found.heads) == heads and sentences(found.verdict.claims).endswith(".")
    assert all(head.evidence for head in found.heads)
    return found


FORMS: dict[str, dict[str, object]] = {
    "one head": {"n_heads": 1},
    "heads of width one": {"n_heads": 12},
    "one head of keys and values": {"n_kv_heads": 1},
    "a window": {"window": 3},
    "a window of one": {"window": 1},
    "linear": {"attention": "linear", "positions": "rope"},
    "three layers": {"n_layers": 3, "residual": True, "norm": "layernorm", "d_mlp": 7},
    "tied": {"tie_embeddings": True},
}


@pytest.mark.parametrize("settings", FORMS.values(), ids=FORMS)
def test_every_form_is_measured(settings: dict[str, object]) -> None:
    task = Noise(vocab_size=17, seq_len=9)
    model = model_for(task, **settings)
    heads = sum(block.n_heads for block in model.attention)
    found = sound(head_report(model, task, 1), heads)
    assert found.verdict.pattern_matters is not None
    if settings == {"window": 1}:  # every query sees itself alone: there is nothing to score
        assert found.heads[0].scores == {} and found.heads[0].entropy is None and found.heads[0].positionality is None
        assert found.verdict.joint_delta_nats == pytest.approx(0.0, abs=1e-6)
    else:
        assert set(found.heads[0].scores) >= {"previous", "self", "first"}
        assert all(0 <= head.entropy <= 1 + 1e-9 for head in found.heads)
        assert all(head.positionality is None or 0 <= head.positionality <= 1 for head in found.heads)


def test_frozen_uniform_attention_is_said_to_be_that() -> None:
    task = Copy(vocab_size=17, seq_len=10)
    found = sound(head_report(model_for(task, attention="uniform"), task, 1), 3)
    assert found.verdict.pattern_matters is False and found.verdict.claims[0].predicate == "frozen uniform"
    assert found.verdict.joint_delta_nats == pytest.approx(0.0, abs=1e-7)
    assert all(head.label is None for head in found.heads)
    assert all(head.uniformity == pytest.approx(1.0, abs=1e-6) for head in found.heads)


def test_an_untrained_model_is_said_not_to_have_learned() -> None:
    task = Copy(vocab_size=17, seq_len=10)
    model = model_for(task)
    redraw(model, 1, std=0.02)
    found = sound(head_report(model, task, 1), 3)
    assert found.verdict.pattern_matters is False
    assert found.verdict.claims[1].predicate == "not learned"
    assert found.verdict.try_task is None  # it is copy already


@pytest.mark.parametrize("length", [1, 2, 3])
def test_rows_of_few_tokens(length: int) -> None:
    task = Repeat(vocab_size=11, seq_len=length)
    found = sound(head_report(model_for(task), task, 1), 3)
    scores = found.heads[0].scores
    assert ("self" in scores) == (length > 1) and ("offset" in scores) == (length > 2)
    assert found.heads[0].unseen_gaps == {}
    if length == 1:
        assert scores == {} and found.heads[0].entropy is None
        assert found.verdict.pattern_matters is False


def test_a_vocabulary_of_two() -> None:
    task = Noise(vocab_size=2, seq_len=9)
    found = sound(head_report(model_for(task), task, 1), 3)
    assert found.heads[0].gap_limit is GapLimit.SYMBOLS and 2 in found.heads[0].unseen_gaps
    assert {head.target for head in found.heads} <= {None, "previous", "self", "first", "offset"}


def test_rows_of_256_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhsa_cli.core.heads.random_baseline.HEADS", 20)
    task = Noise(vocab_size=17, seq_len=256)
    found = sound(head_report(model_for(task, n_heads=2), task, 1), 2)
    assert found.verdict.pattern_matters is not None and found.heads[0].scores["offset"].distance is not None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers(value: float) -> None:
    task = Noise(vocab_size=17, seq_len=9)
    model = model_for(task)
    with torch.no_grad():
        model.attention[0].qkv_proj.weight[3, 2] = value
    found = sound(head_report(model, task, 1), 3)
    assert found.verdict.pattern_matters is None
    (claim,) = found.verdict.claims
    assert claim.predicate == "heads not measured" and claim.evidence["why"].predicate == "weights not finite"
    assert all(head.label is None and head.scores == {} for head in found.heads)
    assert all([claim.predicate for claim in head.evidence] == ["nothing measured"] for head in found.heads)


def test_finite_weights_whose_loss_is_no_number() -> None:
    task = Noise(vocab_size=17, seq_len=9)
    model = model_for(task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e30)
    found = sound(head_report(model, task, 1), 3)
    assert found.verdict.pattern_matters is None and found.verdict.withheld.predicate == "loss not finite"


def test_a_model_that_exploded_is_told_in_short_numbers() -> None:
    task = Noise(vocab_size=17, seq_len=9)
    model = model_for(task)
    with torch.no_grad():
        model.lm_head.weight.mul_(1e19)
    text = sentences(sound(head_report(model, task, 1), 3).verdict.claims)
    assert re.search(r"from \d\.\d+e\+\d+ to \d\.\d+e\+\d+ nats \([-+]\d\.?\d*e\+\d+ \+- \de\+\d+\)", text), text


def test_rows_too_long_to_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Noise(vocab_size=17, seq_len=9)
    model = model_for(task)
    monkeypatch.setattr(probe, "MAX_WEIGHTS", 3 * 9 * 9 * 4)
    assert rows_that_fit(model, 9, 64) == 4  # the fewest that say anything
    assert head_report(model, task, 1).verdict.inputs.startswith("4 held-out rows of noise, 9 tokens")
    monkeypatch.setattr(probe, "MAX_WEIGHTS", 3 * 9 * 9 * 4 - 1)
    assert rows_that_fit(model, 9, 64) == 0
    found = sound(head_report(model, task, 1), 3)
    assert found.verdict.pattern_matters is None
    assert found.verdict.withheld.predicate == "rows too long" and found.verdict.withheld.evidence == {"seq_len": 9}


def test_fewer_rows_of_a_dear_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_for(Noise(vocab_size=17, seq_len=9))
    numbers_in_it = sum(parameter.numel() for parameter in model.parameters())
    monkeypatch.setattr(probe, "MAX_FLOPS", 7.0 * 9 * (2 * numbers_in_it + probe.WEIGHT_FLOPS * 3 * 9))  # seven rows
    assert rows_that_fit(model, 9, 64) == 7
    monkeypatch.setattr(probe, "MAX_FLOPS", 1.0)
    assert rows_that_fit(model, 9, 64) == probe.MIN_ROWS  # cost alone never forbids it


def test_long_rows_are_dear_in_a_small_model() -> None:
    """Most of the time goes into the T x T weights, which no parameter counts."""
    short, long = Noise(vocab_size=17, seq_len=12), Noise(vocab_size=17, seq_len=256)
    assert rows_that_fit(model_for(short, n_heads=4), 12, 64) == 64
    assert probe.MIN_ROWS < rows_that_fit(model_for(long, n_heads=4), 256, 64) < 32


def test_a_model_trained_for_longer_rows_than_the_task_has() -> None:
    task = Noise(vocab_size=17, seq_len=9)
    config = ModelConfig(d_model=12, n_heads=3)
    model = TransformerLM(config, vocab_size=17, max_seq_len=21)
    redraw(model, 1)
    found = sound(head_report(model, task, 1), 3)
    assert max(found.heads[0].unseen_gaps) > 9  # the blocks are as long as the model takes
