"""Tables and sentences about heads, from hand-made measurements: every number in them was put in."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mhsa_cli.records.claims import stored
from mhsa_cli.records.heads import Ablation, HeadMaps, HeadReport, HeadScore, HeadSummary, TargetScore, Verdict
from mhsa_cli.records.labels import TARGETS, Label, Role
from mhsa_cli.renderers.pictures.explain import explain_head, explain_model
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
            score_table(REPORT, surface, papers={(0, 0): 0.1, (0, 1): 0.2, (0, 2): 0.3}),
            ablation_table([Ablation("none", 0.5, 1.0, 0, 0)], surface),
        ):
            assert lines.columns <= width


def test_tables_stay_as_they_were() -> None:
    golden("head-table", head_table(measured(REPORT), COLOR).plain)
    golden("head-table-withheld", head_table(measured(WITHHELD), COLOR).plain)
    golden("head-table-ascii", head_table(maps(12, 3), on(60, "ascii")).plain)
    golden("head-scores", score_table(REPORT, on(90)).plain)
    short = [replace(head, trained_gaps={}, unseen_gaps={}) for head in REPORT.heads]
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


def paragraphs(report: HeadReport, answer: HeadSummary | None = None) -> str:
    return "\n".join([explain_model(report), *(explain_head(head, answer) for head in report.heads)])


def test_paragraphs_stay_as_they_were() -> None:
    """The report with labels, the one that withholds them, and a head on a task with a position of the answer."""
    answer = HeadSummary(0, 0, 1.0, 0.87, 0.11)
    golden("explain", "\n\n".join([paragraphs(REPORT), paragraphs(WITHHELD), explain_head(EVEN, answer)]))


def test_paragraphs_hold_the_measured_numbers_and_no_others() -> None:
    given = {"7.7929", "0.4400", "0.90", "2.2", "3", "64", "0.94", "0.93", "0.439", "1.00"}
    found = re.findall(r"(?<![\w.])\d[\d.]*\d|(?<![\w.])\d(?![\w.])", paragraphs(REPORT))
    assert set(found) == given


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_phrase(target: str) -> None:
    said = {explain_head(replace(PREVIOUS, label=Label(target, role, 4))) for role in Role}
    assert len(said) >= 3 and all("{" not in text and (" 4 " in text) == (target == "offset") for text in said)


def test_a_redundancy_has_three_meanings() -> None:
    said = [explain_model(replace(REPORT, verdict=replace(VERDICT, redundancy=x))) for x in (-0.2, -0.1, 0.1, 0.2)]
    meanings = [re.split(r"redundancy", text)[0] for text in said]
    assert meanings[1] == meanings[2] and len(set(meanings)) == 3
