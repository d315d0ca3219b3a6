"""Of models that invite a false statement the true one is made."""

from __future__ import annotations

import pytest

from mhsa_cli.core.heads.causes import JOINT
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.tasks import TrainBatches
from mhsa_cli.records.claims import Status, judge
from tests.core.liars import LIARS, Liar
from tests.core.referee import SEED, name_of


@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.name)
def test_of_a_planted_liar_the_truth_is_said(liar: Liar) -> None:
    check_liar(liar)


def check_liar(liar: Liar) -> None:
    """Measure a liar: what must be said is said, and what must not be is not."""
    model, task = liar.build()
    training = None if liar.training is None else (TrainBatches(task, SEED, liar.training[0]), liar.training[1])
    report = head_report(model, task, SEED, training=training)
    said = {head.name: {claim.predicate for claim in head.evidence} for head in report.heads}
    said["model"] = {claim.predicate for claim in report.verdict.claims}
    heads = {head.name: head for head in report.heads}
    assert [(about, p) for about, wanted in liar.says.items() for p in wanted if p not in said[about]] == [], said
    assert [(about, p) for about, lies in liar.never.items() for p in lies if p in said[about]] == [], said
    assert {name: heads[name].role for name in liar.roles} == liar.roles
    joint = report.verdict.joint_delta_nats
    if joint is None or judge(joint, report.verdict.joint_delta_se, JOINT) is not Status.SHOWN:
        assert {head.share for head in report.heads} == {None}  # there is nothing to have a share of
    labels = {name: heads[name].label for name in liar.labels}
    assert {name: label and name_of(label) for name, label in labels.items()} == liar.labels
