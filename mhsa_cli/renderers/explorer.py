"""The screens of `mhsa explore`: a table of runs, and of one run its curve, maps and heads (Textual, an extra)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from mhsa_cli.errors import MhsaError
from mhsa_cli.records.heads import HeadMaps, HeadReport
from mhsa_cli.records.report import RunReport
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD
from mhsa_cli.renderers.kit.text_lines import Lines, Phrase, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, short, step_text
from mhsa_cli.renderers.pictures.curve import Level, loss_curve
from mhsa_cli.renderers.pictures.explain import explain_head, explain_model, explain_teamwork, head_line
from mhsa_cli.renderers.pictures.fitted_maps import Fitter, draw_fitted, scale_line
from mhsa_cli.text import Head, escape, plural

CURVE_ROWS, TALL = 5, 34  # rows of the plot; from TALL rows on a screen has twice as many
MARKED, OFF = Style(reverse=True, bold=True), Style(strike=True, dim=True)


@dataclass(frozen=True, slots=True)
class Explored:
    """One run to explore: `frames` are its maps over training, each with the loss; the last are those at the end."""

    run: RunReport
    levels: Sequence[Level]
    frames: Sequence[tuple[HeadMaps, float | None]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A run in the table: its name, and the text of each column."""

    name: str
    cells: Sequence[str]


class Explorer(App[None]):
    """The table of runs; opened with one, that run lies above it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen {overflow: hidden} DataTable {height: 1fr} #maps {height: 1fr} Footer {dock: bottom}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "quit")]

    def __init__(
        self,
        columns: Sequence[str],
        runs: Sequence[Listed],
        open_run: Callable[[str], Explored],
        surface: Surface,
        first: Explored | None = None,
    ) -> None:
        super().__init__(ansi_color=True)
        self._table = RunTable(columns, runs)
        self._open, self.surface, self._first = open_run, surface, first

    def on_mount(self) -> None:
        """Show the table, and the first run if there is one."""
        self.push_screen(self._table)
        if self._first is not None:
            self.push_screen(OneRun(self._first))

    def open(self, name: str) -> None:
        """Show a run; of one that cannot be read, say why."""
        try:
            self.push_screen(OneRun(self._open(name)))
        except MhsaError as error:
            self.notify(str(error), severity="error", markup=False)


class Explorable(Screen[None]):
    """A screen of the explorer."""

    @property
    def explorer(self) -> Explorer:
        """The application."""
        assert isinstance(self.app, Explorer)
        return self.app


class RunTable(Explorable):
    """A line for each run, the newest first; enter opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "open", show=True)]

    def __init__(self, columns: Sequence[str], runs: Sequence[Listed]) -> None:
        super().__init__()
        self._columns, self._runs = columns, runs

    def compose(self) -> ComposeResult:
        """Make the table."""
        yield DataTable(cursor_type="row", zebra_stripes=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Fill the table."""
        table: DataTable[Any] = self.query_one(DataTable)
        table.add_columns(*self._columns)
        for number, run in enumerate(self._runs):
            table.add_row(*(Text(escape(cell)) for cell in run.cells), key=str(number))  # text, not markup

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the run of a row."""
        self.explorer.open(self._runs[event.cursor_row].name)


class OneRun(Explorable):
    """Curve, maps and the chosen head of one run, at one step; heads can be made uniform."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "step", key_display="← →"),
        Binding("right", "move(1)", "later step", show=False),
        Binding("home", "move(-1000000)", "first step", show=False),
        Binding("end", "move(1000000)", "last step", show=False),
        Binding("up", "choose(-1)", "head", key_display="↑ ↓"),
        Binding("down", "choose(1)", "next head", show=False),
        Binding("space", "switch", "uniform"),
        Binding("r", "reset", "reset"),
        Binding("w", "why", "why"),
        Binding("escape", "app.pop_screen", "runs"),
    ]

    def __init__(self, explored: Explored) -> None:
        super().__init__()
        self._explored, self._frame, self._place = explored, len(explored.frames) - 1, 0
        self._heads = [head.address for head in explored.frames[-1][0].heads] if explored.frames else []
        self.uniform: set[Head] = set()

    @property
    def report(self) -> HeadReport | None:
        """The measurements of the heads at the end."""
        maps = self._explored.run.maps
        return None if maps is None else maps.report

    @property
    def step(self) -> int | None:
        """The step that is shown; None without maps."""
        return self._explored.frames[self._frame][0].step if self._explored.frames else None

    @property
    def head(self) -> Head | None:
        """The chosen head; None without maps."""
        return self._heads[self._place] if self._heads else None

    def compose(self) -> ComposeResult:
        """Make the parts, from top to bottom."""
        for name in ("title", "curve", "maps", "said"):
            yield Static(id=name, markup=False)
        yield Footer(show_command_palette=False)

    def on_resize(self) -> None:
        """Draw for the size of the screen."""
        self._draw()

    def action_move(self, by: int) -> None:
        """Go to another step."""
        self._frame = max(0, min(len(self._explored.frames) - 1, self._frame + by))
        self._draw()

    def action_choose(self, by: int) -> None:
        """Go to another head."""
        self._place = (self._place + by) % max(1, len(self._heads))
        self._draw()

    def action_switch(self) -> None:
        """Make the chosen head uniform, or give it its pattern back; where only single effects are known, it alone."""
        if self.head is not None and self.report is not None:
            self.uniform = (self.uniform if self.report.coalitions else self.uniform & {self.head}) ^ {self.head}
            self._draw()

    def action_reset(self) -> None:
        """Give every head its pattern back."""
        self.uniform = set()
        self._draw()

    def action_why(self) -> None:
        """Show what is said of the model, and the evidence for the chosen head."""
        if self.report is not None:
            self.app.push_screen(Evidence(self.report, self._place))

    def _draw(self) -> None:
        surface = replace(self.explorer.surface, width=self.size.width, height=self.size.height)
        top, curve, said = self._title(surface), self._curve(surface), self._said(surface)
        if 2 * len(curve) > surface.height:
            curve = Lines()
        room = self.size.height - len(top) - len(curve) - len(said) - 1
        parts = {"title": top, "curve": curve, "maps": self._maps(surface, room), "said": said}
        for name, lines in parts.items():
            part = self.query_one(f"#{name}", Static)
            part.display = bool(lines)
            part.update(lines)

    def _title(self, surface: Surface) -> Lines:
        explored = self._explored
        facts: list[Phrase] = [[(explored.run.name, BOLD)]]
        if explored.frames:
            maps, loss = explored.frames[self._frame]
            facts.append([(maps.when if explored.run.facts.origin else f"step {step_text(maps.step)}", BOLD)])
            if loss is not None:
                facts.append(f"loss {short(loss)}")
        return wrap_phrases(facts, surface.width)

    def _curve(self, surface: Surface) -> Lines:
        """Draw the curve up to the step that is shown, in the frame of the whole one."""
        explored = self._explored
        if not any(one.steps for one in explored.run.series):
            return Lines()
        end = explored.run.series[0].steps[-1]
        at = end if self.step is None else self.step
        parts = [_until(one, at) for one in explored.run.series]
        losses = (value for one in explored.run.series for _, value in one.points)
        values = [value for value in losses if value is not None and math.isfinite(value)]
        rows = CURVE_ROWS * (1 if surface.height < TALL else 2)
        return loss_curve(parts, surface, height=rows, levels=explored.levels, x_max=end, y_max=max(values, default=1))

    def _maps(self, surface: Surface, rows: int) -> Lines:
        if not self._explored.frames:
            return wrap_phrases([f"no attention maps: {self._explored.run.no_maps}"], surface.width)
        maps, _ = self._explored.frames[self._frame]
        pages = Fitter(maps, surface).pages(self._heads, surface.width, rows - 1)
        page = next((one for one in pages if self.head in one.heads), None)
        if page is None:
            return wrap_phrases(["no room for maps: a larger window shows them"], surface.width)
        lines = draw_fitted(page, maps, surface, rows - 1)
        for line in lines:
            for name in {self.head, *self.uniform}:
                line.highlight_regex(rf"{re.escape(str(name))}(?!\d)", MARKED if name == self.head else OFF)
        hidden = len(self._heads) - len(page.heads)
        return lines + scale_line(page, surface, surface.width, [f"{plural(hidden, 'head')} more"] if hidden else [])

    def _said(self, surface: Surface) -> Lines:
        """Write what was measured of the chosen head at the end and, with heads uniform, the loss."""
        if self.report is None:
            return Lines()
        head, (last, _), (shown, _) = (
            self.report.heads[self._place],
            *(self._explored.frames[at] for at in (-1, self._frame)),
        )
        when = "" if shown.step == last.step else f" (at step {step_text(last.step)})"
        lines = wrap_phrases([f"{head.name}{when}: {head_line(head)}"], surface.width)
        if self.uniform:
            names = ", ".join(map(str, sorted(self.uniform)))
            loss, clean = self.report.loss_without(self.uniform), self.report.verdict.loss_nats
            found = "not measured" if loss is None else f"loss {fixed(clean, 4)} -> {fixed(loss, 4)}"
            lines += wrap_phrases([[(f"{names} uniform{when}: {found}", BOLD)]], surface.width)
        return lines


class Evidence(Screen[None]):
    """The sentences about the model, and those about one head."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,w", "app.pop_screen", "back", key_display="esc")]

    def __init__(self, report: HeadReport, head: int) -> None:
        super().__init__()
        self._texts = [explain_model(report), explain_teamwork(report), explain_head(report.heads[head])]

    def compose(self) -> ComposeResult:
        """Make the text, which scrolls."""
        with VerticalScroll():
            yield Static("\n\n".join(filter(None, self._texts)), markup=False)
        yield Footer(show_command_palette=False)


def _until(series: Series, step: int) -> Series:
    count = sum(1 for at in series.steps if at <= step)
    return replace(series, steps=series.steps[:count], values=series.values[:count])
