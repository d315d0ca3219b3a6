"""Circuits of heads as a table, the strongest compositions, and how well the direct contributions add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from mhsa_cli.records.heads import Circuits, Composition, HeadCircuits
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents

MOST_PAIRS = 8
SHOWN = 0.005  # a composition that would be rounded to 0.00 is not shown


def circuits_table(circuits: Circuits, surface: Surface) -> Lines:
    """Draw a line for each head, the strongest compositions, and notes."""
    title = wrap_phrases([[(f"circuits at step {circuits.step:,}", BOLD)], [(circuits.inputs, DIM)]], surface.width)
    parts = [title + _heads(circuits, surface), _compositions(circuits, surface)]
    if circuits.residual_error is not None:
        text = f"direct contributions sum to the logits within {circuits.residual_error:.1e}"
        parts.append(wrap_phrases([text], surface.width))
    return stacked(parts) + [line for note in circuits.notes for line in hanging(note, surface.width, DIM)]


def _heads(circuits: Circuits, surface: Surface) -> Lines:
    """Draw the heads; a figure that no head has gets no column."""

    def column(title: str, value: Callable[[HeadCircuits], str], drop: int, legend: str) -> Column[HeadCircuits]:
        return Column(title, value, "right", drop=drop, legend=legend, when=any(map(value, circuits.heads)))

    position = "position: share of a query's score variance due to positions"
    copies = "copies: tokens whose own logit the OV circuit raises most"
    direct = "direct: contribution to the logit of the right answer, less that to the mean logit"
    known = [
        column("position", partial(_share, "position"), 2, position),
        column("token", partial(_share, "token"), 2, "token: due to tokens"),
        column("mixed", partial(_share, "mixed"), 2, "mixed: due to both"),
        column("copies", lambda h: percents(_finite(h.ov_top1), 0), 0, copies),
        column("eigen", lambda h: fixed(_finite(h.ov_copying), 2, "+"), 3, "eigen: OV copying score, -1 to 1"),
        column("direct", lambda h: fixed(_finite(h.direct_logits), 2, "+"), 1, direct),
    ]
    if not any(one.when for one in known):
        return wrap_phrases(["no circuit of these heads is known"], surface.width)
    return table([Column("head", lambda head: head.name, whole=True), *known], circuits.heads, surface)


def share_groups(shares: Mapping[str, float]) -> dict[str, float]:
    """Add the terms up by what they depend on: those without a token part, without a position part, with both."""
    groups = {"position": 0.0, "token": 0.0, "mixed": 0.0}
    for name, share in shares.items():
        parts = name.split("-")
        groups["position" if "tok" not in parts else "token" if "pos" not in parts else "mixed"] += share
    return groups


def _share(group: str, head: HeadCircuits) -> str:
    return "" if head.qk_shares is None else percents(_finite(share_groups(head.qk_shares)[group]), 0)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _compositions(circuits: Circuits, surface: Surface) -> Lines:
    """Draw which head composes with which, the strongest first."""
    pairs = circuits.compositions
    found = [(getattr(pair, way), way[0].upper(), pair) for pair in pairs for way in ("queries", "keys", "values")]
    found = [item for item in found if math.isfinite(item[0])]
    strong = sorted((item for item in found if item[0] >= SHOWN), key=lambda item: -item[0])[:MOST_PAIRS]
    if not strong:
        return wrap_phrases(["no composition above that of random heads"] if pairs else [], surface.width)
    columns: list[Column[tuple[float, str, Composition]]] = [
        Column("composition", lambda item: f"{item[1]}-composition"),
        Column("reader", lambda item: str(item[2].reader), whole=True),
        Column("writer", lambda item: str(item[2].writer), whole=True),
        Column("score", lambda item: fixed(item[0], 2), "right", legend="score: above random heads of this shape"),
    ]
    return table(columns, strong, surface, notes=[f"strongest {len(strong)} of {len(found):,} scores"])
