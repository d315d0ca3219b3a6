"""What was measured of heads, in tables: a summary line each, all scores, and what is lost without some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rich.text import Text

from mhsa_cli.records.heads import Ablation, HeadMaps, HeadReport, HeadScore, HeadSummary
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import Glyphs
from mhsa_cli.renderers.kit.palette import DIM, clamp
from mhsa_cli.renderers.kit.table import Column, legend, table
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import Head

DISTANCES = 16  # of them at most is the weight drawn
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
    mean = "mean of many rows" if scores else "of this row"

    def label(head: HeadSummary) -> str:
        score = scores.get(head.address)
        return "" if score is None or score.label is None else score.label.text

    def part(name: str) -> Callable[[HeadSummary], str]:
        def text(head: HeadSummary) -> str:
            score = scores.get(head.address)
            target = None if score is None else score.scores.get(score.target or "")
            return "" if target is None else fixed(getattr(target, name), 2)

        return text

    def entropy(head: HeadSummary) -> str:
        return figure(scores[head.address].entropy if head.address in scores else head.entropy)

    def effect(head: HeadSummary) -> str:
        score = scores.get(head.address)
        return "" if score is None or score.uniform_delta_nats is None else fixed(score.uniform_delta_nats, 3, "+")

    def distances(head: HeadSummary) -> str:
        return bars(by_distance(maps.weights[head.layer][head.head]), surface.glyphs)

    back = "by distance"
    columns: list[Column[HeadSummary]] = [
        Column("head", lambda h: h.name, whole=True),
        Column("pattern", label, wraps=True, when=labelled),
        Column("weight", part("mass"), "right", legend="weight: mean weight on the pattern's target", when=labelled),
        Column(
            "uniform", part("uniform"), "right", drop=2, legend="uniform: what a uniform head has there", when=labelled
        ),
        Column("entropy", entropy, "right", drop=1, legend=f"entropy: {mean}, 0 one key, 1 uniform"),
        Column("effect", effect, "right", legend="effect: loss added by making this head uniform, nats", when=caused),
        Column(back, distances, drop=3, legend=f"{back}: attention 0, 1, 2 ... tokens back in this row"),
    ]
    chosen = [head for head in maps.heads if heads is None or head.address in heads]
    return table(columns, chosen, surface) + legend(columns, chosen, surface)


def score_table(report: HeadReport, surface: Surface, *, papers: Mapping[Head, float] | None = None) -> Lines:
    """Set every head's lift on every target, and its other scores, in a table; induction also at other distances.

    `papers` adds a column: the prefix matching score of Olsson et al. 2022, by address.
    """
    names = list(dict.fromkeys(name for head in report.heads for name in head.scores))
    # The offset, the one with a distance, stays longest beside the head's name.
    last = ("offset", "induction", "previous", "duplicate")

    def lift(name: str, head: HeadScore | None) -> str:
        if head is None:
            return fixed(max((h.scores[name].null or 0.0 for h in report.heads if name in h.scores), default=0.0), 2)
        score = head.scores.get(name)
        if score is None:
            return ""
        return fixed(score.lift, 2) + (f" ({score.distance})" if score.distance is not None else "")

    def other(name: str, head: HeadScore | None) -> str:
        return "" if head is None else figure(getattr(head, name))

    def olsson(head: HeadScore | None) -> str:
        return "" if head is None or papers is None else fixed(papers[head.address], 2)

    columns: list[Column[HeadScore | None]] = [
        Column("head", lambda h: "random" if h is None else h.name, whole=True),
        *(
            Column(name, partial(lift, name), "right", drop=last.index(name) if name in last else len(last))
            for name in names
        ),
        Column("entropy", partial(other, "entropy"), "right", drop=9),
        Column("even", partial(other, "uniformity"), "right", drop=8, legend="even: likeness to the uniform head"),
        Column("sure", partial(other, "confidence"), "right", drop=7, legend="sure: mean largest weight"),
        Column(
            "position",
            partial(other, "positionality"),
            "right",
            drop=6,
            legend="position: likeness of its maps on different random rows",
        ),
        Column(
            "Olsson 2022",
            olsson,
            "right",
            legend="Olsson 2022: mean weight on what followed earlier repeats, 4 x 25 random tokens; not a lift",
            when=papers is not None,
        ),
    ]
    rows = [*report.heads, None]  # the last one: random heads
    notes = (
        "lift: 0 as an even head, 1 all weight on the target, below 0 avoids it",
        "random: 99 % of untrained heads stay below",
    )
    return table(columns, rows, surface) + legend(columns, rows, surface, *notes) + gap_table(report, surface)


def gap_table(report: HeadReport, surface: Surface) -> Lines:
    """Set each head's induction lift by distance between repeats; `*` marks distances that training used."""
    trained = {gap for head in report.heads for gap in head.trained_gaps}
    gaps = {gap for head in report.heads for gap in head.unseen_gaps} | trained
    if not gaps:
        return wrap_phrases(["The rows are too short to try heads at other distances."], surface.width, DIM)
    # The farthest are lost first in a narrow terminal, those of the training last.
    drops = sorted(gaps, key=lambda gap: (gap not in trained, gap))

    def lift(gap: int, head: HeadScore) -> str:
        lifts = {**head.trained_gaps, **head.unseen_gaps}
        return fixed(lifts[gap], 2) if gap in lifts else ""

    columns: list[Column[HeadScore]] = [
        Column("induction at", lambda h: h.name, whole=True),
        *(
            Column(f"{gap}{'*' if gap in trained else ''}", partial(lift, gap), "right", drop=drops.index(gap))
            for gap in sorted(gaps)
        ),
    ]
    said = "lift where a random block of so many symbols repeats"
    said += "; * training used this distance" if trained else ""
    return Lines([Text()]) + table(columns, report.heads, surface) + wrap_phrases([said], surface.width, DIM)


def ablation_table(ablations: Sequence[Ablation], surface: Surface) -> Lines:
    """Set loss and accuracy with heads acted on in every way beside those of the model as it is."""
    columns: list[Column[Ablation]] = [
        Column("these heads", lambda one: WAYS.get(one.way, one.way)),
        Column("loss", lambda one: fixed(one.loss, 4), "right"),
        Column("change", lambda one: "" if one.way == "none" else fixed(one.delta_nats, 4, "+"), "right"),
        Column("+-", lambda one: "" if one.way == "none" else fixed(one.delta_se, 4), "right", drop=1),
        Column("accuracy", lambda one: percents(one.accuracy), "right"),
    ]
    said = "nats on the probe rows; +-: standard error over the rows"
    return table(columns, ablations, surface) + wrap_phrases([said], surface.width, DIM)


def figure(value: float | None) -> str:
    """Write a figure in 0..1, or nothing."""
    return "" if value is None else fixed(value, 2)


def bars(values: Sequence[float], glyphs: Glyphs) -> str:
    """Draw one character a value, from nothing at 0 to a full block at 1; what is above 0.02 is never nothing."""
    levels = len(glyphs.bars) - 1
    parts = [clamp(value) if value == value else 0.0 for value in values]
    return "".join(glyphs.bars[max(round(part * levels), 1 if part > 0.02 else 0)] for part in parts)


def by_distance(weights: Sequence[Sequence[float]]) -> list[float]:
    """Average a causal map along its diagonals: the mean weight on the key 0, 1, 2, ... positions back."""
    means = []
    for distance in range(min(len(weights), DISTANCES)):
        band = [row[q] for q, row in enumerate(weights[distance:]) if q < len(row)]
        means.append(sum(band) / len(band) if band else 0.0)
    return means
