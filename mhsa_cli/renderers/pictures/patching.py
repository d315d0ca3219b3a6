"""Tables of patched paths and heads, the logit lens, direct logits by position, and the scores of a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mhsa_cli.records.claim_words import words
from mhsa_cli.records.heads import ActivationEffect, PathEffect
from mhsa_cli.records.inspection import DirectLogits, LensStep, LogitLens, PaperScore, PaperScores
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import Head

POSITIONS = 24  # rows of the table by position; more positions are averaged
ERROR = "+-: standard error over the rows"


def path_table(effects: Sequence[PathEffect], surface: Surface) -> Lines:
    """Draw the loss that each path costs when it carries what its writer adds in a corrupted row."""
    arrow = surface.glyphs.right_text

    def path(effect: PathEffect) -> str:
        writer, _, reader = str(effect.path).partition(":")
        return f"{writer} {arrow} {reader}"

    legend = "null: largest change by 64 random writers whose output changes as much"
    columns: list[Column[PathEffect]] = [
        Column("path", path, whole=True),
        Column("change", lambda one: fixed(one.delta_nats, 4, "+"), "right", legend="change of the loss, nats"),
        Column("+-", lambda one: fixed(one.delta_se, 4), "right", drop=1, legend=ERROR),
        Column("null", lambda one: fixed(one.null, 4), "right", legend=legend),
    ]
    return table(columns, effects, surface)


def activation_table(effects: Sequence[ActivationEffect], surface: Surface) -> Lines:
    """Draw the loss that each head costs when its whole output is that of a corrupted row."""
    columns: list[Column[ActivationEffect]] = [
        Column("head", lambda one: one.name, whole=True),
        Column("change", lambda one: fixed(one.delta_nats, 4, "+"), "right", legend="change of the loss, nats"),
        Column("+-", lambda one: fixed(one.delta_se, 4), "right", drop=1, legend=ERROR),
    ]
    return table(columns, effects, surface, notes=["the head's whole output is patched; all that follows reads it"])


def lens_table(lens: LogitLens, surface: Surface) -> Lines:
    """Draw loss and accuracy of the stream after every layer."""
    before = dict(zip(lens.steps[1:], lens.steps, strict=False))

    def change(step: LensStep) -> str:
        return fixed(step.loss - before[step].loss, 4, "+") if step in before else ""

    columns: list[Column[LensStep]] = [
        Column("after", lambda step: "embedding" if step.layer is None else f"L{step.layer}", whole=True),
        Column("loss", lambda step: fixed(step.loss, 4), "right", legend="loss in nats"),
        Column("change", change, "right", drop=1),
        Column("accuracy", lambda step: percents(step.accuracy), "right"),
    ]
    notes = [f"chance level: loss {fixed(lens.chance_loss, 4)}, accuracy {percents(lens.chance_accuracy)}"]
    return table(columns, lens.steps, surface, notes=notes)


def direct_table(direct: DirectLogits, surface: Surface) -> Lines:
    """Draw a line for each query position, or for each of POSITIONS ranges of them, and a column for each head."""
    scored = [position for position, count in enumerate(direct.counts) if count]
    size = -(-len(scored) // POSITIONS)
    groups = [scored[first : first + size] for first in range(0, len(scored), max(1, size))]

    def figure(head: Head, group: Sequence[int]) -> str:
        found = [(direct.counts[position], direct.heads[head][position] or 0.0) for position in group]
        return fixed(sum(n * value for n, value in found) / sum(n for n, _ in found), 2, "+")

    def named(group: Sequence[int]) -> str:
        return str(group[0]) if len(group) == 1 else f"{group[0]} to {group[-1]}"

    heads = list(direct.heads)
    columns: list[Column[Sequence[int]]] = [
        Column("query", named, "right", whole=True),
        *(Column(str(head), partial(figure, head), "right", drop=place) for place, head in enumerate(heads)),
    ]
    note = "contribution to the logit of the right answer, less that to the mean logit; query: its position"
    lines = table(columns, groups, surface, notes=[note]) if heads and groups else Lines()
    return lines + [line for note in direct.notes for line in hanging(words(note), surface.width, DIM)]


def paper_table(scores: PaperScores, surface: Surface) -> Lines:
    """Draw prefix matching and copying of every head, then what untrained heads reach."""

    def column(title: str, own: Callable[[PaperScore], str], null: str, legend: str, when: bool = True) -> Column[Row]:
        return Column(title, lambda one: null if one is None else own(one), "right", legend=legend, when=when)

    prefix = "prefix matching: Olsson et al. 2022, mean weight on 4 x 25 random tokens; not a lift"
    copies = "copies: tokens whose own logit the OV circuit raises most"
    null, copied = fixed(scores.prefix_matching_null, 2), percents(scores.copies_null, 0)
    columns: list[Column[Row]] = [
        Column("head", lambda one: "untrained" if one is None else one.name, whole=True),
        column("prefix matching", lambda one: fixed(one.prefix_matching, 2), null, prefix),
        column("copies", lambda one: percents(one.copies, 0), copied, copies, scores.copies_null is not None),
    ]
    lines = table(columns, [*scores.heads, None], surface)
    return lines + wrap_phrases(["untrained: 99th percentile of untrained heads"], surface.width, DIM)


Row = PaperScore | None
