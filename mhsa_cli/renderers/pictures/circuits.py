"""Circuits of heads as a table, the strongest compositions, and how well the direct contributions add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from mhsa_cli.records.circuits import Circuits, Composition, HeadCircuits
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.heads import HeadReport
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import from_file

MOST_PAIRS = 8
EIGEN = "eigen: OV copying score, -1 to 1"
SHARES = {
    "position": "position: share of a query's score variance due to positions",
    "distance": "distance: share of a query's score variance due to the distance, whatever the tokens",
    "token": "token: due to tokens",
    "mixed": "mixed: due to both together",
}


def circuits_table(circuits: Circuits, surface: Surface, *, report: HeadReport | None = None) -> Lines:
    """Draw a line for each head, the strongest compositions, and notes; `report` adds the heads' positionality."""
    where = (
        f"circuits at step {circuits.step:,}"
        if circuits.origin is None
        else f"circuits of {from_file(circuits.origin)}"
    )
    title = wrap_phrases([[(where, BOLD)], [(circuits.inputs, DIM)]], surface.width)
    parts = [title + _heads(circuits, report, surface), _compositions(circuits, surface)]
    if circuits.residual_error is not None:
        text = f"direct contributions sum to the logits within {circuits.residual_error:.1e}"
        parts.append(wrap_phrases([text], surface.width))
    return stacked(parts) + [line for note in circuits.notes for line in hanging(words(note), surface.width, DIM)]


def _heads(circuits: Circuits, report: HeadReport | None, surface: Surface) -> Lines:
    """Draw the heads, and what random ones reach; a figure that no head has gets no column."""
    positional = {} if report is None else {head.address: head.positionality for head in report.heads}

    def column(
        title: str, value: Callable[[HeadCircuits], str], drop: int, legend: str, null: str = ""
    ) -> Column[HeadCircuits | None]:
        known = any(map(value, circuits.heads))
        return Column(title, lambda h: value(h) if h else null, "right", drop=drop, legend=legend, when=known)

    copies = "copies: tokens whose own logit the OV circuit raises most"
    direct = "direct: contribution to the logit of the right answer, less that to the mean logit"
    nulls = [_finite(null) for null in (circuits.null_top1, circuits.null_copying)]
    known = [
        column(
            "positionality",
            lambda h: fixed(_finite(positional.get(h.address)), 2),
            4,
            "positionality: similarity of the maps on other tokens",
        ),
        *(column(name, partial(_share, name), 2, legend) for name, legend in SHARES.items()),
        column("copies", lambda h: percents(_finite(h.ov_top1), 0), 0, copies, percents(nulls[0], 0)),
        column("eigen", lambda h: fixed(_finite(h.ov_copying), 2, "+"), 3, EIGEN, fixed(nulls[1], 2, "+")),
        column("direct", lambda h: fixed(_finite(h.direct_logits), 2, "+"), 1, direct),
        column("+-", lambda h: fixed(_finite(h.direct_se), 2), 1, "+-: its standard error over the rows"),
    ]
    if not any(one.when for one in known):
        return wrap_phrases(["no circuit of these heads is known"], surface.width)
    random = any(null is not None for null in nulls)
    name: Column[HeadCircuits | None] = Column("head", lambda head: head.name if head else "random", whole=True)
    notes = ["random: 1% of heads that read random directions exceed this"] if random else []
    return table([name, *known], [*circuits.heads, *([None] if random else [])], surface, notes=notes)


def share_groups(shares: Mapping[str, float]) -> dict[str, float]:
    """Add the terms up by what they depend on: positions, the distance, tokens, or tokens and one of the others."""
    groups: dict[str, float] = {}
    for term, share in shares.items():
        parts = set(term.split("-")) - {"bias"}  # a bias alone adds the same to every key of a query
        group = "position" if "pos" in parts else "distance" if "distance" in parts else "token"
        group = "mixed" if len(parts) > 1 else group
        groups[group] = groups.get(group, 0.0) + share
    return groups


def _share(group: str, head: HeadCircuits) -> str:
    return "" if head.qk_shares is None else percents(_finite(share_groups(head.qk_shares).get(group)), 0)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _compositions(circuits: Circuits, surface: Surface) -> Lines:
    """Draw which head composes with which, the strongest first, if that is above what chance gives."""
    pairs, limit = circuits.compositions, _finite(circuits.composition_limit)
    found = [(getattr(pair, way), way[0].upper(), pair) for pair in pairs for way in ("queries", "keys", "values")]
    found = sorted((item for item in found if math.isfinite(item[0])), key=lambda item: -item[0])
    if not found or limit is None:
        return Lines()
    shown = [item for item in found if item[0] > limit]
    chance = f"limit: {fixed(limit, 3)}, which the largest score exceeds in 5% of models with random directions"
    if not shown:
        text = f"no composition shown: the largest of {len(found):,} scores is {fixed(found[0][0], 3)}"
        return wrap_phrases([text, chance], surface.width)
    columns: list[Column[tuple[float, str, Composition]]] = [
        Column("composition", lambda item: f"{item[1]}-composition"),
        Column("reader", lambda item: str(item[2].reader), whole=True),
        Column("writer", lambda item: str(item[2].writer), whole=True),
        Column("score", lambda item: fixed(item[0], 3), "right", legend="score: 0 is the mean of random directions"),
    ]
    strong = shown[:MOST_PAIRS]
    counts = f"strongest {len(strong)} of {len(shown):,} above the limit, of {len(found):,} scores"
    return table(columns, strong, surface, notes=[chance, counts])
