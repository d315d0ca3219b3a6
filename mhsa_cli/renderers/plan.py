"""Choose how attention maps are laid out: which cells, how much pooling, how many heads side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from mhsa_cli.records import HeadSummary
from mhsa_cli.renderers.cells import (
    DIGIT_CELL,
    FULL_CELL,
    HALF_CELL,
    PERCENT_CELL,
    WIDE_DIGIT_CELL,
    CellKind,
    Cells,
)
from mhsa_cli.renderers.console import Surface
from mhsa_cli.renderers.lines import safe

GAP = 3  # columns between two heads
MAX_LINES = 44  # a grid taller than this is pooled: it should be seen at once
FULL_UP_TO = 16  # tokens; longer samples get half cells
_LEAST = 32  # pooling for height stops here: smaller pictures say nothing


@dataclass(frozen=True, slots=True)
class Panel:
    """One head to be drawn: its summary, its cells, and the lines above them."""

    summary: HeadSummary
    cells: Cells


@dataclass(frozen=True, slots=True)
class Plan:
    """How all panels are drawn: cell kind, pooling, panels in a row, and columns for tokens at the left."""

    kind: CellKind
    size: int
    per_row: int
    axis: int = 0


def choose_plan(
    rows: Sequence[Sequence[Panel]], length: int, tokens: Sequence[str], width: int, surface: Surface
) -> Plan:
    """Choose how to draw: percents for one head, else full cells for short samples, else half cells, else pooled."""
    axis = min(8, max((cell_len(safe(token)) for token in tokens), default=0)) + 1
    if sum(map(len, rows)) == 1:
        for kind in (PERCENT_CELL, *_kinds(surface, wide=True)):
            if kind.tall == 1 and axis + length * kind.wide <= width:
                return Plan(kind, 1, 1, axis)
    kinds = _kinds(surface, wide=length <= FULL_UP_TO)
    plans = []
    size = 1
    while True:
        for kind in kinds:
            per_row = _per_row(rows, math.ceil(length / size) * kind.wide, width)
            if per_row:
                plan = Plan(kind, size, per_row)
                plans.append(plan)
                if _height(rows, plan, length) <= MAX_LINES:
                    return _with_axis(rows, plan, axis, length, width)
        if math.ceil(length / size) <= _LEAST and plans:
            best = min(plans, key=lambda plan: (_height(rows, plan, length), plan.size))
            return _with_axis(rows, best, axis, length, width)
        size *= 2


def _kinds(surface: Surface, *, wide: bool) -> list[CellKind]:
    """List the cell kinds this surface can show, the best first."""
    if not surface.paints:
        return [WIDE_DIGIT_CELL, DIGIT_CELL] if wide else [DIGIT_CELL]
    half = [HALF_CELL] if surface.glyphs.half else []
    return [FULL_CELL, *half] if wide or not half else half


def panel_width(row: Sequence[Panel], cells_width: int) -> int:
    return max([cells_width, *(cell_len(text) for panel in row for text in title_lines(panel.summary, cells_width))])


def _per_row(rows: Sequence[Sequence[Panel]], cells_width: int, width: int, axis: int = 0) -> int:
    """Count how many heads fit side by side; 0 when not even one does."""
    if cells_width + axis > width:
        return 0
    panel = max(panel_width(row, cells_width) for row in rows) + axis
    return max(1, (width + GAP) // (panel + GAP))


def _with_axis(rows: Sequence[Sequence[Panel]], plan: Plan, axis: int, length: int, width: int) -> Plan:
    """Add tokens beside each head when that costs no head its place in the row."""
    if plan.size > 1 or plan.kind.tall > 1:
        return plan
    longest = max(map(len, rows))
    per_row = _per_row(rows, length * plan.kind.wide, width, axis)
    if math.ceil(longest / max(1, per_row)) == math.ceil(longest / plan.per_row) and per_row:
        return Plan(plan.kind, plan.size, per_row, axis)
    return plan


def _height(rows: Sequence[Sequence[Panel]], plan: Plan, length: int) -> int:
    cells = math.ceil(math.ceil(length / plan.size) / plan.kind.tall)
    wide = math.ceil(length / plan.size) * plan.kind.wide
    return sum(
        math.ceil(len(row) / plan.per_row) * (cells + 1 + max(len(title_lines(panel.summary, wide)) for panel in row))
        for row in rows
    )


def balanced(row: Sequence[Panel], per_row: int) -> list[Sequence[Panel]]:
    """Cut a layer's heads into lines of nearly equal length: 8 in lines of at most 5 are 4 + 4."""
    lines = math.ceil(len(row) / per_row)
    size = math.ceil(len(row) / lines)
    return [row[start : start + size] for start in range(0, len(row), size)]


def title_lines(summary: HeadSummary, width: int) -> list[str]:
    """Write what stands above a head, in as many lines as its width needs."""
    entropy = "" if summary.entropy is None else f"entropy {summary.entropy:.2f}"
    first = f"{summary.name}  {entropy}".rstrip()
    lines = [first] if len(first) <= width else [summary.name, entropy]
    if summary.source_weight is not None:
        source = f"source {summary.source_weight:.2f}"
        chance = "" if summary.source_chance is None else f"(chance {summary.source_chance:.2f})"
        both = f"{source} {chance}".rstrip()
        lines += [both] if len(both) <= width else [source, chance]
    return [line for line in lines if line]
