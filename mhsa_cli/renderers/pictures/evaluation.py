"""A model on held-out rows: a table of its figures, a row for each task, and the accuracy place by place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from rich.cells import cell_len

from mhsa_cli.records.evaluation import Evaluation, GroupEvaluation, Place
from mhsa_cli.records.sweep import Median, SweepReport
from mhsa_cli.renderers.kit.cells import DIGIT_CELL, FULL_CELL, WIDE_DIGIT_CELL, CellKind, color_bar, paint
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Grid, Lines, Phrase, cut_middle, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.sweep_figures import loss_text
from mhsa_cli.renderers.pictures.sweep_words import short_names

ERROR = "+-: standard error over the rows"
UNCHANGED = "unchanged"  # the task of the run


def task_name(result: Evaluation) -> str:
    """Name the task of an evaluation by the settings that were given."""
    return result.name or UNCHANGED


def evaluation_picture(results: Sequence[Evaluation], surface: Surface) -> Lines:
    """Draw a table with a row for each task, and below it the accuracy by place."""
    return stacked([evaluation_table(results, surface), places_picture(results, surface)])


def evaluation_table(results: Sequence[Evaluation], surface: Surface) -> Lines:
    """Set loss, accuracy and exact match of each task, with their errors and the chance level."""
    chances = {(one.chance_loss, one.chance_accuracy) for one in results}
    several = len(chances) > 1
    figures: list[tuple[str, Callable[[Evaluation], str], int, str, bool]] = [
        ("loss", lambda one: fixed(one.loss, 4), 0, "loss in nats", True),
        ("+-", lambda one: fixed(one.loss_se, 4), 2, ERROR, True),
        ("chance", lambda one: fixed(one.chance_loss, 4), 3, "", several),
        ("accuracy", lambda one: percents(one.accuracy), 0, "", True),
        ("+-", lambda one: percents(one.accuracy_se), 2, "", True),
        ("chance", lambda one: percents(one.chance_accuracy), 3, "", several),
        ("exact match", lambda one: percents(one.exact_match), 0, "exact match: rows with every answer right", True),
        ("95% CI", _interval, 2, "", True),
    ]
    columns = [
        Column("task", task_name, whole=True),
        *(Column(title, value, "right", drop=drop, legend=said, when=w) for title, value, drop, said, w in figures),
        Column(
            "seen",
            lambda one: "" if one.seen is None else str(one.seen),
            "right",
            drop=1,
            legend="seen: rows that training also had",
            when=any(one.seen is not None for one in results),
        ),
    ]
    loss, accuracy = next(iter(chances))
    notes = [] if several else [f"chance level: loss {fixed(loss, 4)}, accuracy {percents(accuracy)}"]
    return table(columns, results, surface, notes=notes)


def sweep_evaluation_table(report: SweepReport, groups: Sequence[GroupEvaluation], surface: Surface) -> Lines:
    """Set the medians over the seeds of each setting, with a row for each task."""
    dash = surface.glyphs.dash

    def share(found: Median) -> str:
        ends = "" if found.low is None else f" ({percents(found.low)}{dash}{percents(found.high)})"
        return f"{percents(found.estimate)}{ends}"

    def setting(key: str, one: GroupEvaluation) -> str:
        return one.overrides.get(key, "")

    columns: list[Column[GroupEvaluation]] = [
        *(Column(title, partial(setting, key), "right", whole=True) for key, title in short_names(report).items()),
        Column("task", lambda one: one.name or UNCHANGED, whole=True),
        Column("seeds", lambda one: str(one.models), "right"),
        Column("loss", lambda one: loss_text(one.loss, dash), "right", legend="medians over seeds, 95% CI from 6 on"),
        Column("accuracy", lambda one: share(one.accuracy), "right"),
        Column("exact match", lambda one: share(one.exact_match), "right", legend="rows with every answer right"),
        Column("chance", lambda one: percents(one.chance_accuracy), "right", drop=1, legend="chance: accuracy"),
    ]
    return table(columns, groups, surface)


def _interval(one: Evaluation) -> str:
    return f"{percents(one.exact_low)} to {percents(one.exact_high)}"


def places_picture(results: Sequence[Evaluation], surface: Surface) -> Lines:
    """Draw a line of cells for each task: the accuracy at each scored place, pooled where there is no room.

    Places count from the first scored token of a row where that is not the same in all rows, else from the row's start.
    """
    shifts = {(one.positions[0].at, *(place.count for place in one.positions)) for one in results}
    from_start = len({first for first, *_ in shifts}) == 1 and all(
        [place.count for place in one.positions] == [place.count for place in one.answers] for one in results
    )
    lines = [one.positions if from_start else one.answers for one in results]
    first, last = min(line[0].at for line in lines), max(line[-1].at for line in lines)
    labels = [cut_middle(task_name(one), surface.width // 2, surface.glyphs.cut_text) for one in results]
    margin = max(map(cell_len, labels)) + 2
    span, room = last - first + 1, max(4, surface.width - margin)
    kind = FULL_CELL if surface.paints else WIDE_DIGIT_CELL if 2 * span <= room else DIGIT_CELL
    size = math.ceil(span * kind.wide / room)
    grid = Grid(surface.width, len(lines) + 1)
    for y, (label, line) in enumerate(zip(labels, lines, strict=True)):
        grid.put(0, y, label, PLAIN)
        paint(grid, margin, y, [_pooled(line, first, last, size)], kind, surface)
    _ticks(grid, margin, len(lines), kind, first, last, size)
    where = "position" if from_start else "place from the first scored token on"
    return (
        wrap_phrases([[("accuracy", BOLD)], f"by {where}"], surface.width, DIM) + grid.lines() + _legend(size, surface)
    )


def _pooled(line: Sequence[Place], first: int, last: int, size: int) -> list[float | None]:
    """Average the accuracy over the scored tokens of each `size` places; None where there are none."""
    cells: list[float | None] = []
    for start in range(first, last + 1, size):
        part = [place for place in line if start <= place.at < start + size]
        total = sum(place.count for place in part)
        cells.append(sum(place.count * place.accuracy for place in part) / total if total else None)
    return cells


def _ticks(grid: Grid, left: int, y: int, kind: CellKind, first: int, last: int, size: int) -> None:
    """Write the first place of cells below them, as many as can be read."""
    stride = math.ceil((len(str(last)) + 2) / kind.wide)
    for number, start in enumerate(range(first, last + 1, size)):
        if number % stride == 0 and left + number * kind.wide + len(str(start)) <= grid.width:
            grid.put(left + number * kind.wide, y, str(start), DIM)


def _legend(size: int, surface: Surface) -> Lines:
    if surface.paints:
        scale: Phrase = [("accuracy 0 ", DIM), *color_bar(surface), (" 1", DIM)]
    else:
        scale = f"accuracy in tenths: 9 is 0.85 or more, {surface.glyphs.dot} is under 0.05"
    phrases: list[Phrase] = [scale]
    if size > 1:
        phrases.append(f"each cell: mean over {size} places")
    return wrap_phrases(phrases, surface.width, DIM)
