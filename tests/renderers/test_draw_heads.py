"""Tables and sentences about heads, from hand-made measurements: every number in them was put in."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mhsa_cli.records.claims import Claim, Predicate, Status, stored
from mhsa_cli.records.heads import (
    Ablation,
    GapLimit,
    HeadMaps,
    HeadReport,
    HeadScore,
    TargetScore,
    Verdict,
)
from mhsa_cli.records.labels import TARGETS, Extent, Label, Role
from mhsa_cli.renderers.pictures.explain import (
    by_importance,
    by_worth,
    explain_head,
    explain_model,
    explain_teamwork,
    head_line,
    head_lines,
)
from mhsa_cli.renderers.pictures.heads import ablation_table, head_table, score_table
from tests.renderers.drawn import COLOR, SURFACES, golden, maps, on

PREVIOUS = HeadScore(
    0,
    1,
    {"previous": TargetScore(0.94, 0.19, 0.926, None, 0.011), "offset": TargetScore(0.05, 0.11, -0.067, 4, 0.016)},
    entropy=0.12,
    uniformity=0.21,
    confidence=0.95,
    positionality=0.97,
    trained_gaps={7: 0.01},
    unseen_gaps={2: -0.2, 4: 0.3, 9: 0.05},
    uniform_delta_nats=0.439,
    uniform_delta_se=0.02,
    shapley_nats=1.25,
    label=Label("previous", Role.SHOWN),
    evidence=(stored("0.94 of its weight lies there (lift 0.93)"), stored("it alone changes the loss by +0.439 nats")),
)
EVEN = HeadScore(
    0, 0, {"previous": TargetScore(0.19, 0.19, 0.0, None, 0.011)}, entropy=1.0, uniformity=1.0, confidence=0.31,
    positionality=1.0, uniform_delta_nats=0.0, label=Label("near-uniform"),
    evidence=(stored("it is 1.00 like an even head"),),
)  # fmt: skip
IDLE = replace(PREVIOUS, layer=0, head=2, label=Label("previous", Role.NO_EFFECT), uniform_delta_nats=0.001)
VERDICT = Verdict(
    True, 7.7929, 0.1, 0.0019, [stored("The pattern matters.")], "64 rows of copy", None, 0.9, 2.2
)  # fmt: skip
REPORT = HeadReport(VERDICT, [EVEN, PREVIOUS, IDLE])
WITHHELD = HeadReport(
    Verdict(
        False,
        0.0093,
        0.001,
        0.002,
        [stored("It does not matter on repeat.")],
        "64 rows of repeat",
        "copy",
        withheld=stored("small"),
    ),
    [
        replace(
            head, label=None, evidence=(stored("not labelled: it does not matter"), stored("it alone changes 0.003"))
        )
        for head in REPORT.heads
    ],
)


def measured(report: HeadReport) -> HeadMaps:
    return replace(maps(12, 3), report=report)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_table_is_wider_than_its_paper(width: int) -> None:
    for surface in (on(width, kind) for kind in SURFACES):
        for lines in (
            head_table(measured(REPORT), surface),
            score_table(REPORT, surface),
            ablation_table([Ablation("none", 0.5, 1.0, 0, 0)], surface),
        ):
            assert lines.columns <= width


def test_tables_stay_as_they_were() -> None:
    golden("head-table", head_table(measured(REPORT), COLOR).plain)
    golden("head-table-withheld", head_table(measured(WITHHELD), COLOR).plain)
    golden("head-table-ascii", head_table(maps(12, 3), on(60, "ascii")).plain)
    golden("head-scores", score_table(REPORT, on(90)).plain)
    short = [replace(head, trained_gaps={}, unseen_gaps={}, gap_limit=GapLimit.LENGTH) for head in REPORT.heads]
    golden("head-scores-60", score_table(HeadReport(VERDICT, short), on(60)).plain)
    ways = [Ablation("none", 0.0019, 1.0, 0, 0), Ablation("uniform", 3.1441, 0.352, 3.1422, 0.1234)]
    golden("head-ablation", ablation_table(ways, on(60)).plain)


def test_only_chosen_heads_have_a_line() -> None:
    text = head_table(measured(REPORT), COLOR, heads=[(0, 1)]).plain
    assert re.findall(r"L\d\.H\d", text) == ["L0.H1"]


def test_a_narrow_terminal_loses_far_distances_and_no_names() -> None:
    far = {gap: 0.01 * gap for gap in range(8, 20)}
    heads = [replace(head, trained_gaps={7: 0.5, 12: 0.4}, unseen_gaps=far) for head in REPORT.heads]
    text = score_table(replace(REPORT, heads=heads), on(60)).plain
    at = text[text.index("induction at") :]
    assert all(f"\n{head.name}  " in at for head in heads) and "7*" in at and "12*" in at.splitlines()[0]
    assert at.splitlines()[len(heads) + 1].endswith(": 15, 16, 17, 18, 19")


def claim(
    subject: str, predicate: Predicate, estimate: float, status: Status = Status.SHOWN, **evidence: object
) -> Claim:
    return Claim(subject, predicate, estimate, 0.02, 0.19, status, evidence)


LED = replace(
    VERDICT,
    claims=[
        Claim("model", "solved by", 0.98, evidence={
            "accuracy": 1.0, "circuit": "", "groups": {"previous:shown": ["L0.H1", "L0.H2"]},
            "suffice": {"previous:shown": "any"}, "answers": ["previous:shown"],
        }),
        claim("model", "labels account", 0.98),
        claim("model", "pattern matters", 7.79, loss=0.01, without=7.8),
        claim("model", "back each other up", 7.1, heads=["L0.H1", "L0.H2"], singles={"L0.H1": 0.4, "L0.H2": 0.01}),
    ],
)  # fmt: skip
FULL = replace(
    PREVIOUS,
    role=Role.SHOWN,
    share=0.61,
    share_se=0.02,
    evidence=(
        claim("L0.H1", "weight on target", 0.94, lift=0.926),
        claim("L0.H1", "on the answer", 0.93, lift=0.91, shown=True),
        claim("L0.H1", "effect", 0.439),
        claim("L0.H1", "share", 0.61, share=4.75, joint=7.79),
        claim("L0.H1", "kept", 0.97, target="previous:shown"),
    ),
)


def test_what_is_explained_stays_as_it_was() -> None:
    """The headline, a line for each head, how they share the work, and the figures of one head."""
    report = HeadReport(LED, [EVEN, FULL, replace(IDLE, role=Role.NO_EFFECT)])
    lines = head_lines(report.heads, 60).plain
    golden("explain", "\n\n".join([explain_model(report), lines, explain_teamwork(report), explain_head(FULL)]))


def test_heads_with_an_effect_come_first() -> None:
    roles = [Role.NO_EFFECT, Role.HARMFUL, Role.REDUNDANT, Role.SHOWN, None]
    heads = [replace(FULL, head=i, role=role, shapley_nats=float(5 - i)) for i, role in enumerate(roles)]
    assert [head.role for head in by_worth(heads)][:3] == [Role.REDUNDANT, Role.SHOWN, Role.HARMFUL]


def test_heads_of_the_headline_come_before_others_that_cost_more() -> None:
    heads = [replace(FULL, head=i, role=Role.SHOWN, shapley_nats=float(9 - i)) for i in range(4)]
    claim = Claim("model", "works by", 0.9, evidence={"groups": {"offset": ["L0.H3"], "induction": ["L0.H2"]}})
    found = by_importance(HeadReport(replace(LED, claims=[claim]), heads))
    assert [head.head for head in found] == [2, 3, 0, 1]


def test_heads_come_in_the_order_of_the_figure_that_their_lines_show() -> None:
    """Shares where they were measured, effects alone where not; a head without an effect has no share in its line."""

    def order(role: Role, *figures: tuple[float | None, float]) -> list[int]:
        heads = [
            replace(FULL, head=i, role=role, shapley_nats=shapley, uniform_delta_nats=delta)
            for i, (shapley, delta) in enumerate(figures)
        ]
        return [head.head for head in by_worth(heads)]

    assert order(Role.SHOWN, (0.3, 0.1), (0.2, 0.9), (0.4, 0.0), (-0.5, 0.2)) == [2, 0, 1, 3]
    assert order(Role.SHOWN, (None, 0.1), (None, 0.9), (None, 0.2)) == [1, 2, 0]
    assert order(Role.NO_EFFECT, (0.3, 0.001), (0.2, 0.004), (0.1, -0.006)) == [2, 1, 0]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_and_cause_has_a_phrase(target: str) -> None:
    label = Label(target, Role.SHOWN, 4, 7, 5)
    lines = {head_line(replace(FULL, label=replace(label, role=role), role=role)) for role in Role}
    assert len(lines) == len(Role) and not any("{" in line for line in lines)
    extents = {head_line(replace(FULL, label=replace(label, extent=extent), kept=0.4)) for extent in (None, *Extent)}
    assert len(extents) == 3
    numbers = {"offset": ["4"], "modulo": ["4", "11", "18"], "token": ["5"]}.get(target, [])
    assert re.findall(r"(?<![\w.%])\d+(?![\w.%])", label.attends_to) == numbers


def test_shares_beyond_the_whole_and_those_not_shown_are_not_printed_as_percent() -> None:
    def line(share: float, status: Status) -> str:
        return head_line(
            replace(FULL, share=share, scores={}, evidence=(Claim("L0.H1", "share", share, status=status),))
        )

    assert "61%" in line(0.61, Status.SHOWN)
    for share, status in ((-0.2, Status.OPPOSITE), (1.3, Status.SHOWN), (0.02, Status.NOT_SHOWN)):
        assert "%" not in line(share, status)
