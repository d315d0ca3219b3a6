"""Tables of heads: a summary line each (below their maps), all scores, and losses with heads ablated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.text import Text

from mhsa_cli.records.claim_words import GAP_LIMITS
from mhsa_cli.records.heads import Ablation, HeadMaps, HeadReport, HeadScore, HeadSummary, TargetScore
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import Glyphs
from mhsa_cli.renderers.kit.palette import DIM, clamp
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.heatmap import head_maps
from mhsa_cli.text import Head

DISTANCES = 16  # the most that are drawn
LIFT = "lift: 0 uniform, 1 all weight on the target, below 0 avoids it"


def heads_picture(maps: HeadMaps, surface: Surface, heads: Sequence[Head] | None = None) -> Lines:
    """Draw maps, and under them the table of their heads."""
    picture = head_maps(maps, surface, heads=heads)
    return picture if maps.report is None else stacked([picture, head_table(maps, surface, heads=heads)])


def head_table(maps: HeadMaps, surface: Surface, *, heads: Sequence[Head] | None = None) -> Lines:
    """Draw a line for each head, or for those at the addresses `heads`: pattern, weight, entropy, effect, distances.

    A cell is empty where a value is withheld or was not measured.
    """
    scores = {} if maps.report is None else {score.address: score for score in maps.report.heads}
    labelled = any(score.label is not None for score in scores.values())
    caused = any(score.uniform_delta_nats is not None for score in scores.values())
    over = "mean over the rows" if scores else "this row"

    def label(head: HeadSummary) -> str:
        score = scores.get(head.address)
        return "" if score is None or score.label is None else score.label.text

    def part(name: str, head: HeadSummary) -> str:
        score = scores.get(head.address)
        target = None if score is None else score.scores.get(score.target or "")
        return fixed(getattr(target, name, None), 2)

    def effect(head: HeadSummary) -> str:
        score = scores.get(head.address)
        return "" if score is None else fixed(score.uniform_delta_nats, 3, "+")

    def distances(head: HeadSummary) -> str:
        return bars(by_distance(maps.weights[head.layer][head.head]), surface.glyphs)

    weight, uniform = "weight: mean weight on the target", "uniform: of a uniform head"
    entropy = f"entropy: {over}, 0 one key, 1 uniform"
    loss = "effect: loss added by making this head uniform, nats"
    back = "by distance: attention 0, 1, 2 ... tokens back in this row"
    columns: list[Column[HeadSummary]] = [
        Column("head", lambda h: h.name, whole=True),
        Column("layer", lambda h: maps.parts[h.layer].role if maps.parts else "", when=bool(maps.parts)),
        Column("pattern", label, wraps=True, when=labelled),
        Column("weight", partial(part, "mass"), "right", legend=weight, when=labelled),
        Column("uniform", partial(part, "uniform"), "right", drop=2, legend=uniform, when=labelled),
        Column("entropy", lambda h: fixed(scores.get(h.address, h).entropy, 2), "right", drop=1, legend=entropy),
        Column("effect", effect, "right", legend=loss, when=caused),
        Column("by distance", distances, drop=3, legend=back),
    ]
    return table(columns, [head for head in maps.heads if heads is None or head.address in heads], surface)


def score_table(report: HeadReport, surface: Surface) -> Lines:
    """Draw every head's lift on every target and its other scores, then its induction lift at other distances.

    Below them stand the lifts that a label must exceed: of untrained heads, and of random ones in the same model.
    """
    names = list(dict.fromkeys(name for head in report.heads for name in head.scores))
    nulls = {
        label: {name: _largest(report, name, field) for name in names}
        for label, field in (("untrained", "null"), ("random", "random_null"))
    }
    # The offset, a score with a number, stays longest beside the head's name.
    last = ("offset", "induction", "previous", "duplicate")

    def lift(name: str, row: HeadScore | str) -> str:
        if isinstance(row, str):
            return fixed(nulls[row][name], 2)
        score = row.scores.get(name)
        return "" if score is None else f"{fixed(score.lift, 2)}{_numbers(score)}"

    def other(name: str, drop: int, legend: str = "") -> Column[HeadScore | str]:
        def figure(row: HeadScore | str) -> str:
            return "" if isinstance(row, str) else fixed(getattr(row, name), 2)

        return Column(name, figure, "right", drop=drop, legend=legend)

    columns: list[Column[HeadScore | str]] = [
        Column("head", lambda row: row if isinstance(row, str) else row.name, whole=True, legend=LIFT),
        *(
            Column(name, partial(lift, name), "right", drop=last.index(name) if name in last else len(last))
            for name in names
        ),
        other("entropy", 9),
        other("uniformity", 8, "uniformity: similarity to uniform attention"),
        other("confidence", 7, "confidence: mean largest weight"),
        other("positionality", 6, "positionality: similarity of the map on shuffled tokens"),
    ]
    legends = {
        "untrained": "untrained: 99th percentile of untrained heads",
        "random": "random: largest of heads of this model with random queries and keys",
    }
    known = [label for label, lifts in nulls.items() if any(lift is not None for lift in lifts.values())]
    notes = [legends[label] for label in known]
    rows: list[HeadScore | str] = [*report.heads, *known]
    return table(columns, rows, surface, notes=notes) + gap_table(report, surface)


def _largest(report: HeadReport, name: str, field: str) -> float | None:
    found = [getattr(head.scores[name], field) for head in report.heads if name in head.scores]
    return max((value for value in found if value is not None), default=None)


def _numbers(score: TargetScore) -> str:
    """Write the numbers of a head's best offset or token."""
    if score.period is not None:
        return f" ({score.distance} mod {score.period})"
    number = score.distance if score.token is None else score.token
    return "" if number is None else f" ({number})"


def gap_table(report: HeadReport, surface: Surface) -> Lines:
    """Draw each head's induction lift by distance between repeats; `*` marks the distances of training."""
    trained = {gap for head in report.heads for gap in head.trained_gaps}
    gaps = {gap for head in report.heads for gap in head.unseen_gaps} | trained
    if not gaps:
        limit = next((head.gap_limit for head in report.heads), None)
        return wrap_phrases([f"induction was not tested at other distances{GAP_LIMITS[limit]}"], surface.width, DIM)
    # The farthest are hidden first in a narrow terminal, those of training last.
    drops = sorted(gaps, key=lambda gap: (gap not in trained, gap))

    def lift(gap: int, head: HeadScore) -> str:
        return fixed({**head.trained_gaps, **head.unseen_gaps}.get(gap), 2)

    columns: list[Column[HeadScore]] = [
        Column("induction at", lambda h: h.name, whole=True),
        *(
            Column(f"{gap}{'*' if gap in trained else ''}", partial(lift, gap), "right", drop=drops.index(gap))
            for gap in sorted(gaps)
        ),
    ]
    notes = ["induction lift by distance between repeats, on random tokens"]
    notes += ["*: distance favoured by the rows of the task"] if trained else []
    return Lines([Text()]) + table(columns, report.heads, surface, notes=notes)


def ablation_table(ablations: Sequence[Ablation], surface: Surface) -> Lines:
    """Draw loss and accuracy with heads ablated in every way, and without ablation."""
    error = "+-: standard error over the rows"
    columns: list[Column[Ablation]] = [
        Column("ablation", lambda one: one.way),
        Column("loss", lambda one: fixed(one.loss, 4), "right", legend="loss in nats"),
        Column("change", lambda one: "" if one.way == "none" else fixed(one.delta_nats, 4, "+"), "right"),
        Column("+-", lambda one: "" if one.way == "none" else fixed(one.delta_se, 4), "right", drop=1, legend=error),
        Column("accuracy", lambda one: percents(one.accuracy), "right"),
    ]
    notes = [
        "uniform: uniform attention",
        "resample: attention of another row",
        "zero, mean: output set to zero, its mean",
    ]
    return table(columns, ablations, surface, notes=notes)


def bars(values: Sequence[float], glyphs: Glyphs) -> str:
    """Draw one character a value, from nothing at 0 to a full block at 1; what is above 0.02 is never nothing."""
    levels = len(glyphs.bars) - 1
    parts = [clamp(value) if value == value else 0.0 for value in values]
    return "".join(glyphs.bars[max(round(part * levels), 1 if part > 0.02 else 0)] for part in parts)


def by_distance(weights: Sequence[Sequence[float]]) -> list[float]:
    """Average a map along its diagonals: the mean weight on the key 0, 1, 2, ... positions back.

    A query with no weight at all sees no key, and does not count.
    """
    means = []
    for distance in range(min(len(weights), DISTANCES)):
        band = [row[q] for q, row in enumerate(weights[distance:]) if q < len(row) and any(row)]
        means.append(sum(band) / len(band) if band else 0.0)
    return means
