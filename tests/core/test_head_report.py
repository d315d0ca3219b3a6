"""Head reports: labels of hand-built, ineffective, positional and untrained heads."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import causal, probe, random_baseline
from mhsa_cli.core.heads.causal import ablate
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.errors import DamageError
from mhsa_cli.records.claims import Status
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, HeadSummary
from mhsa_cli.records.labels import CONDITIONAL, Label, Role
from mhsa_cli.runs.heads import maps_from_dict, maps_to_dict
from mhsa_cli.text import Head
from tests.benchmarks.false_labels import count
from tests.core.handmade import FAR, MODELS, Attended, Period, handmade, induction
from tests.core.noise import small

ROWS = 7  # of a probe: the hand-built heads are the same on every row
LABELS = {kind: Label(kind, Role.SHOWN, FAR if kind == "offset" else None) for kind in MODELS}


def report(model: TransformerLM, task: Task, seed: int = 3) -> HeadReport:
    with mock.patch.object(probe, "ROWS", ROWS):
        return head_report(model, task, seed)


def numbers(value: object) -> list[float]:
    """Every number in a report, however deep."""
    if isinstance(value, dict):
        return [x for part in value.values() for x in numbers(part)]
    if isinstance(value, list | tuple):
        return [x for part in value for x in numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize("kind", list(MODELS))
def test_hand_built_heads_are_labelled_and_have_an_effect(kind: str) -> None:
    found = report(MODELS[kind](), Attended(kind))
    assert found.verdict.pattern_matters is True and found.verdict.joint_delta_nats > 0.5
    claims = {claim.predicate: claim for claim in found.verdict.claims}
    assert claims["pattern matters"].estimate == found.verdict.joint_delta_nats
    assert claims["solved by"].evidence["groups"].keys() >= {LABELS[kind].id}
    assert claims["labels account"].estimate == found.verdict.labels_kept == pytest.approx(1.0, abs=1e-3)
    assert found.verdict.inputs.startswith(f"{ROWS} ")
    head = found.heads[-1]
    assert (head.label, head.target) == (LABELS[kind], kind)
    assert head.scores[kind].lift == pytest.approx(1.0, abs=1e-6)
    assert 0 <= head.scores[kind].null < 0.1
    assert head.uniform_delta_nats > 0.5 and head.zero_delta_nats > 0.5
    where = " where it is" if kind in CONDITIONAL else ""
    assert head.evidence[0].predicate == f"weight on target{where}"
    evidence = {claim.predicate: claim for claim in head.evidence}
    assert evidence["effect"].estimate == head.uniform_delta_nats and head.role is Role.SHOWN
    assert evidence["kept"].estimate == head.kept == pytest.approx(1.0, abs=1e-3)
    assert all(math.isfinite(x) for x in numbers(asdict(found)))


def test_below_an_induction_head_is_a_previous_token_head() -> None:
    found = report(induction(), Attended("induction"))
    assert [head.label.id for head in found.heads] == ["previous:shown", "induction:shown"]
    assert [head.name for head in found.heads] == ["L0.H0", "L1.H0"]
    assert min(found.heads[1].unseen_gaps.values()) > 0.99 and len(found.heads[1].unseen_gaps) >= 3
    assert found.verdict.redundancy is None  # each alone is worth as much as both: they need each other
    assert [pair.nats > pair.se > 0 for pair in found.verdict.interactions] == [True]
    claims = {claim.predicate: claim for claim in found.verdict.claims}
    assert claims["heads depend"].status is claims["need each other"].status is Status.SHOWN
    singles = [head.uniform_delta_nats for head in found.heads]
    assert claims["heads depend"].evidence["excess"] == pytest.approx(sum(singles) - found.verdict.joint_delta_nats)
    shares = [head.shapley_nats for head in found.heads]
    assert sum(shares) == pytest.approx(found.verdict.joint_delta_nats, abs=1e-6)


def test_all_that_is_measured_is_written_and_read_back() -> None:
    found = report(induction(), Period(6))
    shown = [HeadSummary(*head.address, entropy=0.5) for head in found.heads]
    maps = HeadMaps(1, "seen", ["a"], [[[[1.0]]], [[[1.0]]]], shown, report=found)
    written = json.loads(json.dumps(maps_to_dict(maps)))
    back = maps_from_dict(written).report
    assert back.verdict == found.verdict  # claims too, with their figures and statuses
    assert [replace(head, evidence=()) for head in back.heads] == [replace(head, evidence=()) for head in found.heads]
    assert json.loads(json.dumps(maps_to_dict(replace(maps, report=back)))) == written  # keys of JSON are texts
    for head in found.heads:
        empty = [name for name, value in asdict(head).items() if value is None or value == {}]
        assert empty == ["gap_limit", "own_scores"]  # nobody asked for scores of their own
    assert {claim.predicate for claim in found.verdict.claims} >= {"solved by", "labels account", "need each other"}


def test_the_losses_of_all_coalitions_are_those_of_their_ablations() -> None:
    """All heads: the clean loss; none: all uniform; all but some: those ablated. Read back, and from older files."""
    model, task = small(1, vocab_size=17, n_layers=2), Attended("self", vocab_size=17, seq_len=13)
    found = report(model, task)
    losses, every, clean = found.coalitions, 2 ** len(found.heads) - 1, found.verdict.loss_nats
    assert len(losses) == every + 1 == 64 and losses[every] == pytest.approx(clean, abs=1e-6)
    assert losses[0] == pytest.approx(clean + found.verdict.joint_delta_nats, abs=1e-5)
    for bit, head in enumerate(found.heads):
        assert losses[every ^ 1 << bit] == pytest.approx(clean + head.uniform_delta_nats, abs=1e-6)
    rows = probe.build_probe(model, task, 3, ROWS)
    pair = {way.way: way.loss for way in ablate(model, rows.batch, [Head(0, 1), Head(1, 2)])}
    assert losses[every ^ 1 << 1 ^ 1 << 5] == pytest.approx(pair["uniform"], abs=1e-5) != pytest.approx(clean, abs=1e-3)
    shown = [HeadSummary(*head.address, entropy=0.5) for head in found.heads]
    written = json.loads(json.dumps(maps_to_dict(HeadMaps(1, "own", ["a"], [[[[1.0]]] * 3] * 2, shown, report=found))))
    assert maps_from_dict(written).report.coalitions == losses
    assert maps_from_dict({**written, "coalitions": None}).report.coalitions == ()
    with pytest.raises(DamageError, match="64"):
        maps_from_dict({**written, "coalitions": losses[:-1]})


def test_a_head_that_writes_nothing_has_no_effect() -> None:
    found = report(handmade("previous", "previous", "uniform", idle=[1]), Attended("previous"))
    assert [head.label.id for head in found.heads] == ["previous:shown", "dead", "near-uniform"]
    one, idle, even = found.heads
    assert idle.scores["previous"].lift == pytest.approx(1.0, abs=1e-6)
    assert (idle.uniform_delta_nats, idle.shapley_nats) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert even.uniformity == pytest.approx(1.0, abs=1e-6) and even.target is None
    assert one.shapley_nats == pytest.approx(found.verdict.joint_delta_nats, abs=1e-6)
    assert found.verdict.effective_heads == pytest.approx(1.0, abs=1e-4)


def test_two_equal_heads_are_redundant_and_count_as_two() -> None:
    found = report(handmade("first", "first", loud=60.0), Attended("first"))
    assert [head.label.id for head in found.heads] == ["first:shown", "first:shown"]  # by their shares
    assert max(head.uniform_delta_nats for head in found.heads) < 0.01
    assert found.verdict.redundancy > 0.98 and found.verdict.effective_heads == pytest.approx(2.0, abs=1e-3)


def test_a_head_at_a_distance_is_not_called_induction_on_blocks_of_one_length() -> None:
    fixed = report(handmade("period 6"), Period(6)).heads[0]
    assert fixed.scores["induction"].lift == pytest.approx(1.0, abs=1e-6)
    assert (fixed.label.id, fixed.target) == ("offset:5:shown", "offset")
    assert "tested at other distances" in [claim.predicate for claim in fixed.evidence]
    assert max(fixed.unseen_gaps.values()) < 0.5
    assert fixed.trained_gaps[6] == pytest.approx(1.0, abs=1e-6)
    real = report(induction(), Period(6)).heads[1]
    assert (real.label.id, real.target) == ("induction:shown", "induction")
    assert real.scores["offset"].lift > 0.5  # it shows a distance too, and content is the better name


def test_where_the_effect_is_within_its_error_no_shares_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = handmade("previous", "first"), Attended("previous")
    sure = report(model, task)
    worth = sure.verdict.joint_delta_nats
    together = causal.Ablator.joint

    def unsure(ablator: causal.Ablator, *given: object) -> causal.Effect:
        """The effect with a large standard error."""
        return together(ablator, *given)._replace(se=0.52 * worth)

    monkeypatch.setattr(causal.Ablator, "joint", unsure)
    found = report(model, task)
    verdict = found.verdict
    assert verdict.pattern_matters is True and worth > 0.05  # by single heads
    assert {claim.predicate for claim in verdict.claims} == {"no effect shown", "single effects"}
    assert verdict.redundancy is None and verdict.effective_heads is None and verdict.labels_kept is None
    assert verdict.withheld.predicate == "joint effect too small" and verdict.withheld.status is Status.NOT_SHOWN
    assert verdict.withheld.estimate == worth and verdict.interactions == []
    said = {claim.predicate for head in found.heads for claim in head.evidence}
    assert "effect" in said and not said & {"share", "negative share"}


def test_where_every_key_holds_the_answer_no_head_is_labelled() -> None:
    """On rows of one symbol every head gives the same answer."""

    class Same(Attended):
        def rows(self, n: int, generator: torch.Generator) -> torch.Tensor:
            return torch.randint(self.vocab_size, (n, 1), generator=generator).repeat(1, self.seq_len)

    found = report(handmade("previous", "first"), Same("first"))
    assert found.verdict.pattern_matters is False and found.verdict.joint_delta_nats == pytest.approx(0.0, abs=1e-5)
    assert found.verdict.try_task == "copy" and found.verdict.claims[0].predicate == "no effect shown"
    assert found.verdict.redundancy is None and found.verdict.effective_heads is None and found.verdict.withheld
    assert all(head.label is None and head.target is None for head in found.heads)
    assert found.heads[0].scores["previous"].lift == pytest.approx(1.0, abs=1e-6)  # measured all the same


def test_large_models_keep_their_scores_without_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "MAX_FLOPS", 0.0)
    found = report(handmade("previous"), Attended("previous"))
    head = found.heads[0]
    assert found.coalitions == []
    assert head.uniform_delta_nats is None and head.shapley_nats is None and head.resample_delta_nats is None
    assert head.label == Label("previous", Role.PATTERN) and found.verdict.withheld.predicate == "not all measured"
    assert found.verdict.pattern_matters is True  # the joint replacement is one variant only


@pytest.mark.parametrize("training", [True, False])
def test_measuring_changes_nothing_of_the_model(training: bool) -> None:
    model = small(1, n_layers=2, residual=True, dropout=0.3).train(training)
    digest, state = weights_sha256(model), torch.random.get_rng_state()
    first = report(model, Attended("self", vocab_size=17, seq_len=13))
    assert weights_sha256(model) == digest and model.training is training
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert report(model, Attended("self", vocab_size=17, seq_len=13)) == first


def test_limits_that_models_of_one_shape_share_are_those_of_each() -> None:
    task = Attended("self")
    limits = random_baseline.null_limits(handmade("previous"), task)
    doubled = random_baseline.Limits({name: 2 * limit for name, limit in limits.targets.items()}, {})
    for seed in (1, 2):
        model = handmade("self", loud=30.0 * seed)
        with mock.patch.object(probe, "ROWS", ROWS):
            assert head_report(model, task, seed, lambda: limits) == head_report(model, task, seed)
            found = head_report(model, task, seed, lambda: doubled)
            assert found.heads[0].scores["self"].null == 2 * limits.targets["self"]


# Trained runs


@cache
def trained(name: str) -> HeadReport:
    config = load_config(str(Path(__file__).parents[2] / "configs" / f"{name}.yaml"), [])
    group = Group([config], build_task(config.task), torch.device("cpu"), watch=False)
    for _ in records_of(group):
        pass
    return head_report(group.model(0), group.task, config.train.seed)


def test_trained_on_repeat_no_head_is_labelled() -> None:
    found = trained("repeat")
    assert found.verdict.pattern_matters is False and found.verdict.joint_delta_nats < 0.05
    assert found.verdict.loss_nats < 0.01, "it has learned the task"
    assert len(found.heads) == 4 and all(head.label is None for head in found.heads)
    assert found.verdict.try_task == "copy"
    assert max(head.scores["first"].lift for head in found.heads) > 0.5  # what a name by looks alone would have said


def test_trained_on_copy_heads_have_a_fixed_offset() -> None:
    found = trained("copy")
    assert found.verdict.pattern_matters is True and found.verdict.joint_delta_nats > 4
    assert [head.label.id for head in found.heads] == ["offset:6:shown"] * 4

    def best(heads: list[HeadScore]) -> float:
        return max(head.scores["induction"].lift for head in heads)

    assert best(list(found.heads)) > 0.6  # on the trained length they would pass for induction heads
    for head in found.heads:
        assert len(head.unseen_gaps) >= 3 and max(head.unseen_gaps.values()) < 0.5
    singles = sum(head.uniform_delta_nats for head in found.heads)
    assert singles < 0.5 * found.verdict.joint_delta_nats and found.verdict.redundancy > 0.5
    assert sum(h.shapley_nats for h in found.heads) == pytest.approx(found.verdict.joint_delta_nats, abs=1e-6)


# What chance gives


def test_untrained_heads_have_no_labels() -> None:
    found = count(10, "untrained", rows=6)
    assert found.heads > 60 and found.labels == []
    assert len(found.patterns) <= 0.01 * found.heads, found.patterns


def test_the_null_excludes_patterns_of_untrained_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained heads with the same pattern: its lift is not above theirs."""
    model = handmade("first")

    def loud(drawn: TransformerLM, generator: torch.Generator) -> None:
        """Every drawn model is a perfect first-token head, as if initial weights made one by chance."""
        for parameter, value in zip(drawn.parameters(), model.parameters(), strict=True):
            parameter.data.copy_(value)

    monkeypatch.setattr(random_baseline, "draw_weights", loud)
    head = report(model, Attended("first")).heads[0]
    assert head.scores["first"].null == pytest.approx(1.0, abs=1e-6)
    assert head.target is None and head.label == Label("focused")


def test_redundant_heads_are_labelled_redundant() -> None:
    """Alone neither has an effect; ablating both shows that they are redundant."""
    with mock.patch("mhsa_cli.core.heads.report.exact_shapley", return_value=None):
        twins = report(handmade("previous", "previous", loud=60.0), Attended("previous")).heads
        idle = report(handmade("previous", "previous", "uniform", idle=[1]), Attended("previous")).heads[1]
    assert all(h.uniform_delta_nats < 0.01 for h in twins)
    for head, other in (twins, twins[::-1]):
        assert head.label == Label("previous", Role.REDUNDANT)
        evidence = {claim.predicate: claim for claim in head.evidence}
        assert evidence["backup heads"].evidence["others"] == [other.name]
        assert evidence["kept"].estimate == pytest.approx(1.0, abs=1e-3)  # with the other uniform
        assert evidence["effect"].status is Status.NOT_SHOWN and "only output" not in evidence
    assert idle.label == Label("dead") and "backup heads" not in [claim.predicate for claim in idle.evidence]


def test_heads_are_not_counted_where_a_share_is_negative() -> None:
    found = report(induction(), Attended("induction")).verdict
    assert found.effective_heads is None and found.withheld.predicate == "negative shares"
