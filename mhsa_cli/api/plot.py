"""Figures in Python: of a run, of its maps, of a sweep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mhsa_cli.errors import MhsaError, unwanted
from mhsa_cli.jobs.guest import as_guest
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.figures.sheet_options import FORMATS, Page, Theme, inches, need_matplotlib, wanted_width
from mhsa_cli.renderers.files import ending_of
from mhsa_cli.renderers.pictures.curve import known_levels
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.listing import origin_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import either

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import Draw, PaperFigure

File = str | os.PathLike[str] | None


def page_of(parts: Sequence[str], only: str | None, width: str | float | None, theme: str) -> Page:
    """Check what is asked of a figure before any work: a width is a text, or a number of inches. Raises: UsageError."""
    if only is not None and only not in parts:
        raise unwanted("only", repr(only), either(parts))
    inch = Page().width if width is None else inches(str(width))
    if inch is None:
        raise unwanted("width", repr(width), wanted_width())
    if theme not in [*Theme]:
        raise unwanted("theme", repr(theme), either(Theme))
    need_matplotlib()
    return Page(inch, Theme(theme), only)


def file_of(path: File) -> Path | None:
    """Check the ending of a file. Raises: UsageError."""
    file = None if path is None else Path(path)
    if file is not None and ending_of(file) not in FORMATS:
        raise unwanted("path", file, f"a name that ends in {either(f'.{ending}' for ending in FORMATS)}")
    return file


def written(figure: PaperFigure, file: Path | None, title: str) -> PaperFigure:
    """Write a figure to a file, if one is given, and return it."""
    if file is not None:
        from mhsa_cli.renderers.figures.sheet import to_bytes

        write_file_atomic(file, to_bytes(figure, ending_of(file), title))
    return figure


def maps_figure(maps: HeadMaps, page: Page) -> PaperFigure:
    """Draw the maps of all heads, and their effects."""
    from mhsa_cli.renderers.figures.maps import heads_figure

    return heads_figure(maps, page)


def run_figure(folder: RunDir, maps: HeadMaps | None, page: Page) -> PaperFigure:
    """Draw the curve of a run, its heads over training, its maps and their effects, as far as it has them."""
    from mhsa_cli.renderers.figures.ablations import effects_of
    from mhsa_cli.renderers.figures.maps import maps_of
    from mhsa_cli.renderers.figures.sheet import compose

    parts: dict[str, Draw | None] = dict.fromkeys(("curve", "lifts", "context"))
    if origin_of(folder.read_run_json()) is None:
        parts |= _over_training(folder, page)
    parts |= {
        "maps": None if maps is None else maps_of(maps),
        "effects": None if maps is None else effects_of(maps.report),
    }
    return compose(page, parts)


def _over_training(folder: RunDir, page: Page) -> dict[str, Draw | None]:
    from mhsa_cli.jobs.history import History
    from mhsa_cli.jobs.timeline import timeline_of
    from mhsa_cli.renderers.figures.curve import loss_plot
    from mhsa_cli.renderers.figures.lifts import timeline_parts

    series, levels = History(folder).series(), known_levels(folder.read_run_json())
    try:
        with as_guest():
            found = timeline_of(folder, None)
    except MhsaError:  # a run without snapshots of its heads
        return {"curve": lambda sheet: loss_plot(sheet, series, levels=levels)}
    over = page.only if page.only in ("curve", "lifts", "context") else None
    return timeline_parts(series, found.histories, levels, found.drop, found.in_context, only=over)
