"""A sheet of parts from above, of an exact width: its axes, legends and margins; and figures as files."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import WAYS
from mhsa_cli.renderers.figures.sheet_options import Page, Theme
from mhsa_cli.renderers.kit.palette import LINE_COLORS, viridis
from mhsa_cli.renderers.kit.ticks import Axis, linear_ticks, log_tick_text, log_ticks, step_text, step_ticks, tick_texts
from mhsa_cli.text import escape

SMALL, PLAIN = 7.0, 8.0  # points: ticks, legends and names; the names of axes
LARGEST = 1e100  # of what matplotlib can put on an axis
EDGE = 0.04  # inches of free paper around everything
GAP = 0.13  # inches between parts
LEGEND_GAP = 0.05  # inches between axes and the legend above them
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
LEVEL_DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 1.5, 1, 1.5)))
WAY_COLORS = {"none": "#8b949e", **dict(zip(WAYS, LINE_COLORS, strict=False))}
# Text stays text: embedded TrueType in PDF, <text> in SVG. The font is the one that matplotlib brings.
_STYLE: Any = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # an SVG names it before any other sans-serif
    "font.size": SMALL,
    "axes.labelsize": PLAIN,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.solid_capstyle": "round",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "axes.labelpad": 2.5,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.handlelength": 1.6,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.1,
    "legend.labelspacing": 0.25,
    "legend.borderpad": 0.0,
    "legend.borderaxespad": 0.0,
    "text.parse_math": False,  # a $ or a _ in a name is a character
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "mhsa",
    "savefig.dpi": 300,
    "savefig.facecolor": "auto",
}


@dataclass(frozen=True, slots=True)
class Inks:
    """The colours of a theme."""

    paper: str
    ink: str
    dim: str
    faint: str
    alarm: str


INKS = {
    Theme.LIGHT: Inks("#ffffff", "#1f2328", "#59636e", "#d8dde3", "#c02a2a"),
    Theme.DARK: Inks("#151515", "#e6e6e6", "#a4adb7", "#3a3f45", "#ff7b72"),
}
VIRIDIS = ListedColormap([tuple(part / 255 for part in viridis(level / 255)) for level in range(256)], "mhsa")


@contextmanager
def style() -> Iterator[None]:
    """Set matplotlib's defaults and our style, whatever the user's are, and put the user's back."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # drawn as a box; the file's text is right
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


class PaperFigure(Figure):
    """A matplotlib Figure that is saved in our style, with the same bytes whenever it is the same."""

    def savefig(self, fname: Any, **more: Any) -> None:
        """Write the figure as matplotlib does; text stays text, and no date is written."""
        given = str(more.get("format") or getattr(fname, "suffix", "") or str(fname).rpartition(".")[2])
        plain: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        metadata = {**plain.get(given.lower().removeprefix("."), {}), **(more.pop("metadata", None) or {})}
        with style():
            super().savefig(fname, metadata=metadata, **more)

    def _repr_png_(self) -> bytes:
        return to_bytes(self, "png", "")


def to_bytes(figure: Figure, ending: str, title: str) -> bytes:
    """Write a figure as the bytes of a pdf, svg or png file; `title` is kept in the file's metadata."""
    file = io.BytesIO()
    named = {"Title": escape(title)} if title else {}
    figure.savefig(file, format=ending, metadata={**named, **({"Software": None} if ending == "png" else {})})
    return file.getvalue()


Draw = Callable[["Sheet"], None]


def compose(page: Page, parts: Mapping[str, Draw | None]) -> PaperFigure:
    """Draw the parts below each other, or the one that is asked for; None is one that was not measured.

    Raises: UsageError if there is none to draw.
    """
    there = {name: draw for name, draw in parts.items() if draw is not None}
    chosen = there if page.only is None else {name: draw for name, draw in there.items() if name == page.only}
    if not chosen:
        known = f"there is: {', '.join(there)}" if there else None
        raise UsageError(f"nothing to draw, not measured here: {page.only or ', '.join(parts)}", known, "no-figure")
    with style():
        sheet = Sheet(page)
        for draw in chosen.values():
            draw(sheet)
        return sheet.finish()


@dataclass(slots=True)
class _Place:
    """Where axes stand, in inches from above: across a `span` (0..1) of the room beside the margins, or at `left`."""

    axes: Axes
    top: float
    height: float
    span: tuple[float, float] = (0.0, 1.0)
    margins: str = ""  # the name of those that share their margins
    fixed: tuple[float, float] | None = None  # left and width in inches


class Sheet:
    """Axes from above on a figure whose height follows. Plots share their left margin, so that their axes align."""

    def __init__(self, page: Page) -> None:
        self.width, self.inks = page.width, INKS[page.theme]
        self.top = EDGE
        self._tall = 400.0  # inches: until all is drawn and the height is known
        self.figure = PaperFigure(figsize=(page.width, self._tall), facecolor=self.inks.paper)
        self._renderer = RendererAgg(1, 1, self.figure.dpi)  # type: ignore[no-untyped-call]  # measures texts
        self._places: list[_Place] = []
        self._texts: list[tuple[Text, float, float]] = []

    def color(self, number: int) -> str:
        """Return the colour of line `number`; they repeat after six, with other dashes."""
        return LINE_COLORS[number % len(LINE_COLORS)]

    def dash(self, number: int) -> Any:
        """Return the dashes of line `number`."""
        return DASHES[number // len(LINE_COLORS) % len(DASHES)]

    def level(self, axes: Axes, value: float, number: int = 0) -> Line2D:
        """Draw a dim line across axes at a level, as that of chance: `number` chooses its dashes."""
        dash = LEVEL_DASHES[number % len(LEVEL_DASHES)]
        return axes.axhline(value, color=self.inks.dim, linewidth=0.8, linestyle=dash)

    def plot(self, height: float, *, span: tuple[float, float] = (0.0, 1.0), margins: str = "") -> Axes:
        """Add axes across the sheet, or a span of it, with the margins of others of the same name."""
        return self._add(_Place(self.figure.add_axes((0, 0, 1, 1)), self.top, height, span, margins))

    def panel(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes at a place in inches."""
        return self._add(_Place(self.figure.add_axes((0, 0, 1, 1)), top, height, fixed=(left, width)))

    def text(self, x: float, y: float, text: str, **more: Any) -> Text:
        """Write a text at a place in inches from the left and from above."""
        found = self.figure.text(0, 0, text, **{"color": self.inks.ink, "fontsize": SMALL, "va": "top", **more})
        self._texts.append((found, x, y))
        self._put_text(found, x, y)
        return found

    def size_of(self, artist: Artist) -> tuple[float, float]:
        """Measure an artist: width and height in inches."""
        box = artist.get_window_extent(self._renderer)
        return box.width / self.figure.dpi, box.height / self.figure.dpi

    def fit(self, text: str, width: float, lines: int = 1, size: float = SMALL) -> str:
        """Break a text between words into at most so many lines of a width in inches; what is too long is cut."""
        rows: list[str] = []
        words = escape(text).split(" ")
        while words:
            count = next((n for n in range(len(words), 1, -1) if self.fits(" ".join(words[:n]), width, size)), 1)
            if len(rows) + 1 == lines:
                return "\n".join([*rows, self._cut(" ".join(words), width, size)])
            rows.append(self._cut(" ".join(words[:count]), width, size))
            words = words[count:]
        return "\n".join(rows)

    def fits(self, text: str, width: float, size: float = SMALL) -> bool:
        """Whether a text is at most so wide, in inches."""
        return self.text_width(text, size) <= width

    def text_width(self, text: str, size: float = SMALL) -> float:
        """Measure a line of text in inches."""
        probe = Text(0, 0, text, fontsize=size, figure=self.figure)
        return self.size_of(probe)[0]

    def _cut(self, text: str, width: float, size: float) -> str:
        if self.fits(text, width, size):
            return text
        least, most = 0, len(text)
        while least + 1 < most:
            middle = (least + most) // 2
            least, most = (middle, most) if self.fits(f"{text[:middle]}…", width, size) else (least, middle)
        return f"{text[:least]}…"

    def legend(self, axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
        """Set a legend above axes, which move down, in as many columns as there is room for."""
        if not handles:
            return
        self._put()
        room = self.width - EDGE - axes.bbox.x0 / self.figure.dpi
        names = [self.fit(label, room - 0.3) for label in labels]
        for columns in range(len(handles), 0, -1):
            legend = axes.legend(
                handles, names, ncols=columns, loc="lower left", bbox_to_anchor=(0, 1), labelcolor=self.inks.ink
            )
            width, height = self.size_of(legend)
            if columns == 1 or width <= room:
                break
        above = height + LEGEND_GAP
        legend.set_bbox_to_anchor((0, 1 + LEGEND_GAP / self._place(axes).height))
        for place in self._places:
            if place.top == self._place(axes).top and place.fixed is None and place.axes is not axes:
                place.top += above
        self._place(axes).top += above
        self._put()

    def close(self, axes: Sequence[Axes], gap: float = GAP) -> None:
        """Go on below axes and what is written under them."""
        self._put()
        ends = []
        for place in map(self._place, axes):
            under = place.axes.bbox.y0 - self._tight(place.axes)[1]
            ends.append(place.top + place.height + max(0.0, under / self.figure.dpi))
        self.top = max(ends) + gap

    def finish(self) -> PaperFigure:
        """Give the figure its height, and return it."""
        height = self.top - GAP + EDGE
        self.figure.set_size_inches(self.width, height)
        self._tall = height
        self._put()
        for found, x, y in self._texts:
            self._put_text(found, x, y)
        for place in self._places:
            self._keep_legend(place)
        return self.figure

    def _keep_legend(self, place: _Place) -> None:
        """Move a legend to the left where margins grew after it was set."""
        legend = place.axes.get_legend()
        if legend is None:
            return
        over = legend.get_window_extent(self._renderer).x1 - (self.width - EDGE) * self.figure.dpi
        if over > 0:
            legend.set_bbox_to_anchor((-over / place.axes.bbox.width, 1 + LEGEND_GAP / place.height))

    def _add(self, place: _Place) -> Axes:
        axes, inks = place.axes, self.inks
        axes.set_facecolor(inks.paper)
        axes.tick_params(colors=inks.dim, labelcolor=inks.ink)
        for side, spine in axes.spines.items():
            spine.set_color(inks.dim)
            spine.set_visible(side in ("left", "bottom"))
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_color(inks.ink)
        self._places.append(place)
        self._put()
        return axes

    def _place(self, axes: Axes) -> _Place:
        return next(place for place in self._places if place.axes is axes)

    def _tight(self, axes: Axes) -> tuple[float, float, float, float]:
        """Measure axes with what is written around them, but no legend: left, bottom, right, top in pixels."""
        boxes = [axes.bbox, *(axis.get_tightbbox(self._renderer) for axis in (axes.xaxis, axes.yaxis))]
        boxes += [text.get_window_extent(self._renderer) for text in axes.texts]
        there = [box for box in boxes if box is not None]
        return (
            min(box.x0 for box in there),
            min(box.y0 for box in there),
            max(box.x1 for box in there),
            max(box.y1 for box in there),
        )

    def _put(self) -> None:
        """Put all axes where they belong: plots with the margins that the widest of them needs."""
        for place in self._places:
            if place.fixed is not None:
                self._set(place, *place.fixed)
        for name in {place.margins for place in self._places}:
            plots = [place for place in self._places if place.fixed is None and place.margins == name]
            left = right = EDGE
            for _ in range(2):  # ticks may change with the room
                for place in plots:
                    x0, _, x1, _ = self._tight(place.axes)
                    box = place.axes.bbox
                    if place.span[0] == 0:
                        left = max(left, EDGE + (box.x0 - x0) / self.figure.dpi)
                    if place.span[1] == 1:
                        right = max(right, EDGE + (x1 - box.x1) / self.figure.dpi)
                room = self.width - left - right
                for place in plots:
                    self._set(place, left + place.span[0] * room, (place.span[1] - place.span[0]) * room)

    def _set(self, place: _Place, left: float, width: float) -> None:
        bottom = self._tall - place.top - place.height
        inches = (left / self.width, bottom / self._tall, width / self.width, place.height / self._tall)
        place.axes.set_position(inches)

    def _put_text(self, found: Text, x: float, y: float) -> None:
        found.set_position((x / self.width, 1 - y / self._tall))


def or_nan(value: float | None) -> float:
    """Return what matplotlib draws: a gap where there is no number, or one too large for an axis."""
    return math.nan if value is None or not abs(value) < LARGEST else value


# -- axes ----------------------------------------------------------------------------------------------------------


def line(axes: Axes, steps: Sequence[int], values: Sequence[float], *, color: str, linestyle: Any = "-") -> Line2D:
    """Add a line with gaps where a value is NaN; a value between two gaps, or the only one, is a dot."""
    known = [False, *(math.isfinite(value) for value in values), False]
    alone = [place for place in range(len(values)) if known[place : place + 3] == [False, True, False]]
    dots: dict[str, Any] = {"marker": "o", "markersize": 2.6, "markevery": alone, "clip_on": False} if alone else {}
    return axes.plot(steps, values, color=color, linewidth=1.0, linestyle=linestyle, **dots)[0]


def set_steps(axes: Axes, low: float, high: float, width: float, *, log: bool = False, label: bool = True) -> None:
    """Make the horizontal axis one of steps from `low` to `high`; `log`: by the logarithm of 1 + step."""
    axis = Axis(low, high, log1p=log)
    if log:
        from numpy import expm1, log1p  # matplotlib's own dependency

        axes.set_xscale("function", functions=(log1p, expm1))
    axes.set_xlim(low, high)
    ticks = [tick for tick in step_ticks(axis, max(2, int(width / (0.62 if log else 0.6)))) if low <= tick <= high]
    ticks = [tick for tick in ticks if tick == ticks[0] or (axis.place(tick) > 0.06 and tick == int(tick))]
    set_ticks(axes.xaxis, ticks, [step_text(tick) for tick in ticks])
    if label:
        axes.set_xlabel("step")
    else:
        axes.tick_params(labelbottom=False)


def set_values(axes: Axes, low: float, high: float, *, log: bool = False, count: int = 5) -> None:
    """Make the vertical axis one of values from `low` to `high`."""
    if log:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    value_ticks(axes.yaxis, low, high, log=log, count=count)


def value_ticks(axis: Any, low: float, high: float, *, log: bool = False, count: int = 5) -> None:
    """Set round ticks on an axis of values, written as plain numbers."""
    ticks = log_ticks(low, high, count) if log else linear_ticks(low, high, count)
    ticks = [tick for tick in ticks if low <= tick <= high]
    set_ticks(axis, ticks, [log_tick_text(tick) for tick in ticks] if log else tick_texts(ticks))


def set_ticks(axis: Any, ticks: Sequence[float], texts: Sequence[str]) -> None:
    """Set ticks with their texts, and no others."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter(texts))
    axis.set_minor_locator(NullLocator())


def grid(axes: Axes, inks: Inks, axis: str = "y") -> None:
    """Draw faint lines at the ticks."""
    axes.grid(True, axis=axis, color=inks.faint, linewidth=0.4)  # type: ignore[arg-type]
