"""Layout of attention maps: the form of cells, pooling, heads side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len

from mhsa_cli.records.heads import HeadSummary
from mhsa_cli.renderers.kit import cells as cell_kinds
from mhsa_cli.renderers.kit.cells import CellKind, Cells
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.text import escape

T = TypeVar("T")
GAP = 3  # columns between two heads
_OVERHANG = 2  # columns of that gap that a head's title may use
MAX_LINES = 44  # a grid taller than this is pooled: it should be seen at once
FULL_UP_TO = 16  # tokens; longer samples get half cells
MAX_TOKEN = 8  # columns of a token beside a map; a longer one is cut
_LEAST = 24  # pooling for height stops here: smaller pictures say nothing


@dataclass(frozen=True, slots=True)
class Panel:
    """One head: summary, label and cells, the tokens of its queries (`down`) and keys (`across`), its layer's role."""

    summary: HeadSummary
    cells: Cells
    down: Sequence[str]
    across: Sequence[str]
    role: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        """The head's address, with the role of its layer."""
        return f"{self.summary.name} {self.role}".rstrip()


Rows = Sequence[Sequence[Panel]]  # the heads of each layer


@dataclass(frozen=True, slots=True)
class Plan:
    """The layout of all panels: kind of cell, pooling (`size` by `size` cells into one), panels side by side.

    In columns and rows: `axis` for tokens at the left, `wide` by `tall` for the cells, `panel` with all of it.
    Titles may be `title` columns long: they may use a part of the gap, never more than the terminal has.
    """

    kind: CellKind
    size: int
    axis: int
    wide: int
    tall: int
    title: int
    panel: int
    per_row: int


def choose_plan(rows: Rows, length: int, tokens: Sequence[str], surface: Surface) -> Plan:
    """Choose a layout: percents for one head, full cells for short samples, else half cells, else pooled."""
    width = surface.width
    axis = min(MAX_TOKEN, max((cell_len(escape(token)) for token in tokens), default=0)) + 1
    if sum(map(len, rows)) == 1:
        for kind in (cell_kinds.PERCENT_CELL, *_kinds(surface, wide=True)):
            if kind.tall == 1 and (plan := _lay_out(rows, kind, 1, axis, length, width)):
                return plan
    kinds = _kinds(surface, wide=length <= FULL_UP_TO)
    plans: list[Plan] = []
    size = 1
    while True:
        fitting = [plan for kind in kinds if (plan := _lay_out(rows, kind, size, 0, length, width))]
        low = [plan for plan in fitting if _height(rows, plan) <= MAX_LINES]
        if low:  # 4 + 4 heads in small cells are better than 3 + 3 + 2 in large ones
            best = next((plan for plan in low if _is_even(rows, plan)), low[0])
            return _with_axis(rows, best, axis, length, width)
        plans += fitting
        if plans and math.ceil(length / size / 2) < _LEAST:
            return _with_axis(rows, min(plans, key=lambda plan: _height(rows, plan)), axis, length, width)
        size *= 2


def _kinds(surface: Surface, *, wide: bool) -> list[CellKind]:
    if not surface.paints:
        return [cell_kinds.WIDE_DIGIT_CELL, cell_kinds.DIGIT_CELL] if wide else [cell_kinds.DIGIT_CELL]
    half = [cell_kinds.HALF_CELL] if surface.glyphs.half else []
    return [cell_kinds.FULL_CELL, *half] if wide or not half else half


def _lay_out(rows: Rows, kind: CellKind, size: int, axis: int, length: int, width: int) -> Plan | None:
    """Compute a plan; None if not even one head fits."""
    cells = math.ceil(length / size)
    wide = cells * kind.wide
    if axis + wide > width:
        return None
    alone = sum(map(len, rows)) == 1
    limit = width - axis if alone else min(wide + _OVERHANG, width - axis)
    titles = [cell_len(text) for row in rows for panel in row for text in title_lines(panel, limit)]
    longest = axis + max([wide, *titles])
    panel = axis + max([wide, *(title - _OVERHANG for title in titles)])
    if longest > width:
        if axis:
            return None  # tokens beside the map would push its title out
        longest = width  # there is always a plan, whatever stands above a head
    per_row = (width - longest) // (panel + GAP) + 1
    return Plan(kind, size, axis, wide, math.ceil(cells / kind.tall), limit, panel, per_row)


def _with_axis(rows: Rows, plan: Plan, axis: int, length: int, width: int) -> Plan:
    """Add tokens beside the heads if as many still fit in a row."""
    if plan.size > 1 or plan.kind.tall > 1:
        return plan
    other = _lay_out(rows, plan.kind, 1, axis, length, width)
    return other if other and len(_bands(rows, other)) <= len(_bands(rows, plan)) else plan


def _bands(rows: Rows, plan: Plan) -> list[Sequence[Panel]]:
    return [part for row in rows for part in balanced(row, plan.per_row)]


def _is_even(rows: Rows, plan: Plan) -> bool:
    return all(len({len(part) for part in balanced(row, plan.per_row)}) == 1 for row in rows)


def _height(rows: Rows, plan: Plan) -> int:
    titles = [max(len(title_lines(panel, plan.title)) for panel in part) for part in _bands(rows, plan)]
    return sum(titles) + len(titles) * (plan.tall + 1 + (plan.axis > 0))


def balanced(row: Sequence[T], per_row: int) -> list[Sequence[T]]:
    """Cut a layer's heads into lines of nearly equal length: 8 in lines of at most 5 are 4 + 4."""
    size = math.ceil(len(row) / math.ceil(len(row) / per_row))
    return [row[start : start + size] for start in range(0, len(row), size)]


def title_lines(panel: Panel, limit: int) -> list[str]:
    """Write the title of a head, in as many lines as `limit` columns need."""
    summary, name = panel.summary, panel.name
    entropy = "" if summary.entropy is None else f"row entropy {fixed(summary.entropy, 2)}"
    first = f"{name}  {entropy}".rstrip()
    lines = (
        [first] if len(first) <= limit else [*([name] if len(name) <= limit else [summary.name, panel.role]), entropy]
    )
    if summary.answer_weight is not None:
        answer = f"answer {fixed(summary.answer_weight, 2)}"
        uniform = "" if summary.answer_uniform is None else f"(uniform {fixed(summary.answer_uniform, 2)})"
        both = f"{answer} {uniform}".rstrip()
        lines += [both] if len(both) <= limit else [answer, uniform]
    return [line for line in lines if line]
