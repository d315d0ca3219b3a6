"""What was measured of heads, in tables: a summary line each, all scores, and what is lost without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from mhsa_cli.records import Ablation, HeadMaps, HeadReport, HeadScore
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM
from mhsa_cli.renderers.kit.table import Column, bars, by_distance, legend, table
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import Head

WAYS = {
    "none": "untouched",
    "uniform": "spread evenly",
    "zero": "set to zero",
    "mean": "set to its mean",
    "resample": "look as in another row",
}


def head_table(maps: HeadMaps, surface: Surface, *, heads: Sequence[Head] | None = None) -> Lines:
    """Summarise heads in a line each: what it looks at, how much, how spread, what it causes, weight by distance.

    `heads` are addresses; left out, all. What is withheld or was not measured is missing.
    """
    scores = {} if maps.report is None else {h.address: h for h in maps.report.heads}
    labelled = any(score.label is not None for score in scores.values())
    caused = bool(scores) and not (labelled and all(s.uniform_delta_nats is None for s in scores.values()))
    columns = [Column("head", whole=True), *([Column("looks at", wraps=True)] if labelled else [])]
    if labelled:
        columns += [Column("weight", "right"), Column("chance", "right", drop=2)]
    columns += [Column("entropy", "right", drop=1), *([Column("effect", "right")] if caused else [])]
    columns.append(Column("by distance back", drop=3))
    rows = []
    for head in maps.heads:
        address = head.address
        if heads is not None and address not in heads:
            continue
        score, row = scores.get(address), [head.name]
        if labelled:
            target = None if score is None else score.scores.get(score.target or "")
            row += ["" if score is None or score.label is None else score.label.text]
            row += ["", ""] if target is None else [fixed(target.mass, 2), fixed(target.chance, 2)]
        row.append(figure(head.entropy if score is None else score.entropy))
        if caused:
            row.append(signed(None if score is None else score.uniform_delta_nats))
        rows.append([*row, bars(by_distance(maps.weights[head.layer][head.head]), surface.glyphs)])
    mean = "of this row" if not scores else "mean of many rows"
    said = [
        ("weight", "weight: mean share of its weight there"),
        ("chance", "chance: what an even head puts there"),
        ("entropy", f"entropy: {mean}, 0 one key, 1 uniform"),
        ("effect", "effect: nats lost if it alone spreads evenly"),
        ("by distance back", "by distance back: weight 0, 1, 2, ... tokens back in this row; blank: none"),
    ]
    return table(columns, rows, surface) + legend(columns, rows, said, surface)


def score_table(report: HeadReport, surface: Surface, *, papers: Mapping[Head, float] | None = None) -> Lines:
    """Set every head's lift on every target, and its other scores, in a table; induction also at other distances.

    `papers` adds a column: the prefix matching score of Olsson et al. 2022, by address.
    """
    names = list(dict.fromkeys(name for head in report.heads for name in head.scores))
    # The offset, the one with a distance, stays longest beside the head's name.
    last = ("offset", "induction", "previous", "duplicate")
    columns = [
        Column("head", whole=True),
        *(Column(n, "right", drop=last.index(n) if n in last else len(last)) for n in names),
    ]
    columns += [Column(name, "right", drop=9 - i) for i, name in enumerate(("entropy", "even", "sure", "position"))]
    columns += [Column("Olsson 2022", "right")] if papers is not None else []
    rows = [
        [head.name, *(_lift(head, name) for name in names), *_shape(head)]
        + ([] if papers is None else [fixed(papers[head.address], 2)])
        for head in report.heads
    ]
    limits = [max((h.scores[n].null or 0.0 for h in report.heads if n in h.scores), default=0.0) for n in names]
    rows.append(["random", *(fixed(limit, 2) for limit in limits)])
    lines = table(columns, rows, surface)
    said = [
        ("", "lift: 0 as an even head, 1 all weight on the target, below 0 avoids it"),
        ("", "random: 99 % of untrained heads stay below"),
        ("even", "even: likeness to the uniform head"),
        ("sure", "sure: mean largest weight"),
        ("position", "position: likeness of its maps on different random rows"),
        (
            "Olsson 2022",
            "Olsson 2022: mean weight on what followed earlier repeats, 4 x 25 random tokens; not a lift",
        ),
    ]
    lines += legend(columns, rows, said, surface)
    return lines + gap_table(report, surface)


def gap_table(report: HeadReport, surface: Surface) -> Lines:
    """Set each head's induction lift by distance between repeats; `*` marks distances that training used."""
    trained = sorted({gap for head in report.heads for gap in head.trained_gaps})
    unseen = sorted({gap for head in report.heads for gap in head.unseen_gaps})
    gaps = sorted({*trained, *unseen})
    if not gaps:
        return Lines(wrap_phrases([[("The rows are too short to try heads at other distances.", DIM)]], surface.width))
    # The farthest are lost first in a narrow terminal, those of the training last.
    drops = {gap: number for number, gap in enumerate([*trained, *(gap for gap in unseen if gap not in trained)])}
    columns = [Column("induction at", whole=True)]
    columns += [Column(f"{gap}{'*' if gap in trained else ''}", "right", drop=drops[gap]) for gap in gaps]
    rows = []
    for head in report.heads:
        lifts = {**head.trained_gaps, **head.unseen_gaps}
        rows.append([head.name, *(fixed(lifts[gap], 2) if gap in lifts else "" for gap in gaps)])
    said = "lift where a random block of so many symbols repeats"
    said += "; * training used this distance" if trained else ""
    picture = table(columns, rows, surface)
    return Lines([Text(), *picture, *wrap_phrases([[(said, DIM)]], surface.width)])


def _lift(head: HeadScore, name: str) -> str:
    score = head.scores.get(name)
    if score is None:
        return ""
    return fixed(score.lift, 2) + (f" ({score.distance})" if score.distance is not None else "")


def _shape(head: HeadScore) -> list[str]:
    return [figure(value) for value in (head.entropy, head.uniformity, head.confidence, head.positionality)]


def ablation_table(ablations: Sequence[Ablation], surface: Surface) -> Lines:
    """Set loss and accuracy with heads acted on in every way beside those of the model as it is."""
    columns = [Column("these heads"), Column("loss", "right"), Column("change", "right"), Column("+-", "right", drop=1)]
    columns.append(Column("accuracy", "right"))
    rows = [
        [
            WAYS.get(one.way, one.way),
            fixed(one.loss, 4),
            "" if one.way == "none" else fixed(one.delta_nats, 4, "+"),
            "" if one.way == "none" else fixed(one.delta_se, 4),
            percents(one.accuracy),
        ]
        for one in ablations
    ]
    said = "nats on the probe rows; +-: standard error over the rows"
    return table(columns, rows, surface) + Lines(wrap_phrases([[(said, DIM)]], surface.width))


def figure(value: float | None) -> str:
    """Write a figure in 0..1, or nothing."""
    return "" if value is None else fixed(value, 2)


def signed(value: float | None) -> str:
    """Write a change in nats, or nothing."""
    return "" if value is None else fixed(value, 3, "+")
