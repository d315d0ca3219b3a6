"""Two runs: their curves, and the costs of their matched heads."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.records.heads import Matching
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.figures.curve import loss_plot
from mhsa_cli.renderers.figures.rows import Row, rows_of
from mhsa_cli.renderers.figures.sheet import PaperFigure, compose
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.pictures.curve import Level


def compare_figure(
    series: Sequence[Series], matching: Matching | None, page: Page, *, levels: Sequence[Level] = ()
) -> PaperFigure:
    """Draw the losses of two runs, and the cost of each pair of heads; a dashed line is the limit of random heads."""
    pairs = [] if matching is None else matching.pairs
    rows = [Row(f"{first} - {second}", cost, None, None) for first, second, cost in pairs]
    level = None if matching is None else matching.null_cost
    return compose(
        page,
        {
            "curve": (lambda sheet: loss_plot(sheet, series, levels=levels, log=True)) if series else None,
            "costs": rows_of(rows, "cost: 0 equal maps, 1 no key in common", share=True, level=level),
        },
    )
