"""Heads' circuits as a table, the strongest compositions in sentences, and how well the parts add up."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mhsa_cli.records.heads import Circuits, HeadCircuits
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM
from mhsa_cli.renderers.kit.table import Column, shown, table
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents

MOST_PAIRS = 8
SHOWN = 0.005  # what would be rounded to 0.00 above chance is not shown
THROUGH = {"queries": "its queries", "keys": "its keys", "values": "its values"}


def circuits_table(circuits: Circuits, surface: Surface) -> Lines:
    """Draw circuits: a line a head, what the columns mean, compositions, notes."""
    width = surface.width
    lines = wrap_phrases([[(f"circuits at step {circuits.step:,}", BOLD)], [(circuits.inputs, DIM)]], width)
    parts = [lines + _heads(circuits, surface), _pairs(circuits, width)]
    if circuits.residual_error is not None:
        said = f"the direct parts add up to the logits within {circuits.residual_error:.1e}"
        parts.append(wrap_phrases([said], width))
    return stacked(parts) + [line for note in circuits.notes for line in hanging(note, width, DIM)]


def _heads(circuits: Circuits, surface: Surface) -> Lines:
    """Set the table and its legend; what no head has gets no column."""
    heads = circuits.heads
    known = [*SHARES] if any(head.qk_shares is not None for head in heads) else []
    known += [column for column in FIGURES if any(map(column.value, heads))]
    if not known:
        return wrap_phrases(["no circuit of these heads is known"], surface.width)
    columns = [Column("head", lambda head: head.name, whole=True), *known]
    lines = table(columns, heads, surface)
    for column in shown(columns, heads, surface)[1:]:  # a column without room needs no meaning
        lines += hanging(f"{column.title}: {column.legend}", surface.width, DIM)
    return lines


def share_groups(shares: Mapping[str, float]) -> dict[str, float]:
    """Add the terms up by what they depend on: those without a token part, without a position part, with both."""
    groups = {"position": 0.0, "token": 0.0, "mixed": 0.0}
    for name, share in shares.items():
        parts = name.split("-")
        groups["position" if "tok" not in parts else "token" if "pos" not in parts else "mixed"] += share
    return groups


def _share(head: HeadCircuits, group: str) -> str:
    return "" if head.qk_shares is None else _percent(share_groups(head.qk_shares)[group])


def _percent(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return percents(value, 0).replace("-0%", "0%") if abs(value) < 0.005 else percents(value, 0)


def _signed(value: float | None) -> str:
    """Write a figure with its sign, zero without one."""
    if value is None or not math.isfinite(value):
        return ""
    if abs(value) >= 1e5:
        return f"{value:+.1e}"
    text = f"{value:+.2f}"
    return text if text.strip("+-0.") else text[1:]


SHARES: list[Column[HeadCircuits]] = [
    Column(
        "position",
        lambda head: _share(head, "position"),
        "right",
        drop=2,
        legend="of what makes a head's score differ between keys, the share that positions alone decide",
    ),
    Column("token", lambda head: _share(head, "token"), "right", drop=2, legend="the share that tokens alone decide"),
    Column("mixed", lambda head: _share(head, "mixed"), "right", drop=2, legend="the share of token with position"),
]
FIGURES: list[Column[HeadCircuits]] = [
    Column(
        "copies",
        lambda head: _percent(head.ov_top1),
        "right",
        legend="share of tokens whose own logit the head raises most, straight from embedding to output",
    ),
    Column(
        "eigen",
        lambda head: _signed(head.ov_copying),
        "right",
        drop=3,
        legend="the same map by its eigenvalues: +1 raises what it reads, -1 lowers it",
    ),
    Column(
        "direct",
        lambda head: _signed(head.direct_logits),
        "right",
        drop=1,
        legend="what a head itself adds to the right answer's logit, less what it adds to the average logit",
    ),
]


def _pairs(circuits: Circuits, width: int) -> Lines:
    """Say which heads read which, the strongest first."""
    ways = [(getattr(pair, way), way, pair) for pair in circuits.compositions for way in THROUGH]
    found = [item for item in ways if math.isfinite(item[0])]
    strong = sorted((item for item in found if item[0] >= SHOWN), key=lambda item: -item[0])[:MOST_PAIRS]
    if circuits.compositions and not strong:
        said = "no head reads what an earlier one writes more than random heads of this shape would"
        return wrap_phrases([said], width)
    lines = Lines()
    for value, way, pair in strong:
        said = f"{pair.reader} reads {pair.writer} through {THROUGH[way]}: {fixed(value, 2)} above chance"
        lines += wrap_phrases([said], width)
    counted = f"the strongest {len(strong)} of {len(found):,} figures; chance: what random heads of this shape score"
    return lines + hanging(counted, width, DIM) if strong else lines
