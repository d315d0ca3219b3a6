"""Heads' circuits as a table, the strongest compositions in sentences, and how well the parts add up."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.text import Text

from mhsa_cli.records import Circuits, Composition, HeadCircuits
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.table import Column, shown_titles, table
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import escape

MOST_PAIRS = 8
SHOWN = 0.005  # what would be rounded to 0.00 above chance is not shown
# A column's heading, and what it means in plain words.
SHARES = {
    "position": "of what makes a head's score differ between keys, the share that positions alone decide",
    "token": "the share that tokens alone decide",
    "mixed": "the share of token with position",
}
COPIES = "share of tokens whose own logit the head raises most, straight from embedding to output"
EIGEN = "the same map by its eigenvalues: +1 raises what it reads, -1 lowers it"
DIRECT = "what a head itself adds to the right answer's logit, less what it adds to the average logit"
THROUGH = {"queries": "its queries", "keys": "its keys", "values": "its values"}


def circuits_table(circuits: Circuits, surface: Surface) -> Lines:
    """Draw circuits: a line a head, what the columns mean, compositions, notes."""
    width = surface.width
    lines = wrap_phrases([[(f"circuits at step {circuits.step:,}", BOLD)], [(escape(circuits.inputs), DIM)]], width)
    lines += [*_heads(circuits, surface), *_pairs(circuits, width)]
    if circuits.residual_error is not None:
        parts = f"the direct parts add up to the logits within {circuits.residual_error:.1e}"
        lines += [Text(), *wrap_phrases([[(parts, PLAIN)]], width)]
    for note in circuits.notes:
        lines += _note(escape(note), width)
    return Lines(lines)


def _heads(circuits: Circuits, surface: Surface) -> list[Text]:
    """Set the table and its legend; what no head has gets no column."""
    heads = circuits.heads
    columns, meanings = [Column("head", whole=True)], []
    shared = any(head.qk_shares is not None for head in heads)
    if shared:
        columns += [Column(name, "right", drop=2) for name in SHARES]
        meanings += list(SHARES.items())
    figures = (
        (Column("copies", "right"), COPIES, [_percent(head.ov_top1) for head in heads]),
        (Column("eigen", "right", drop=3), EIGEN, [_signed(head.ov_copying, 2) for head in heads]),
        (Column("direct", "right", drop=1), DIRECT, [_signed(head.direct_logits, 2) for head in heads]),
    )
    rows = [[head.name, *(_shares(head) if shared else [])] for head in heads]
    for column, meaning, texts in figures:
        if any(texts):
            columns.append(column)
            meanings.append((column.title, meaning))
            for row, text in zip(rows, texts, strict=True):
                row.append(text)
    if len(columns) == 1:
        return wrap_phrases([[("no circuit of these heads is known", PLAIN)]], surface.width)
    lines = list(table(columns, rows, surface))
    shown = shown_titles(columns, rows, surface)  # a column without room needs no meaning
    for title, meaning in meanings:
        lines += _note(f"{title}: {meaning}", surface.width) if title in shown else []
    return lines


def _note(text: str, width: int) -> list[Text]:
    """Set a remark, its later lines indented."""
    first, *rest = wrap_phrases([[(text, DIM)]], width - 2) or [Text()]
    return [first, *(Text("  ") + line for line in rest)]


def share_groups(shares: Mapping[str, float]) -> tuple[float, float, float]:
    """Add the terms up by what they depend on: those without a token part, without a position part, with both."""
    position, token, mixed = 0.0, 0.0, 0.0
    for name, share in shares.items():
        parts = name.split("-")
        if "tok" not in parts:
            position += share
        elif "pos" not in parts:
            token += share
        else:
            mixed += share
    return position, token, mixed


def _shares(head: HeadCircuits) -> list[str]:
    return [""] * 3 if head.qk_shares is None else [_percent(part) for part in share_groups(head.qk_shares)]


def _percent(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return percents(value, 0).replace("-0%", "0%") if abs(value) < 0.005 else percents(value, 0)


def _signed(value: float | None, digits: int) -> str:
    """Write a figure with its sign, zero without one."""
    if value is None or not math.isfinite(value):
        return ""
    if abs(value) >= 1e5:
        return f"{value:+.1e}"
    text = f"{value:+.{digits}f}"
    return text if text.strip("+-0.") else text[1:]


def _pairs(circuits: Circuits, width: int) -> list[Text]:
    """Say which heads read which, the strongest first."""
    if not circuits.compositions:
        return []
    found = [(value, way, pair) for pair in circuits.compositions for way, value in _ways(pair)]
    strong = sorted((item for item in found if item[0] >= SHOWN), key=lambda item: -item[0])
    if not strong:
        said = "no head reads what an earlier one writes more than random heads of this shape would"
        return [Text(), *wrap_phrases([[(said, PLAIN)]], width)]
    lines = [Text()]
    for value, way, pair in strong[:MOST_PAIRS]:
        reader, writer = (str(at) for at in (pair.reader, pair.writer))
        said = f"{reader} reads {writer} through {THROUGH[way]}: {fixed(value, 2)} above chance"
        lines += wrap_phrases([[(said, PLAIN)]], width)
    counted = f"the strongest {len(strong[:MOST_PAIRS])} of {len(found):,} figures; "
    return [*lines, *_note(f"{counted}chance: what random heads of this shape score", width)]


def _ways(pair: Composition) -> list[tuple[str, float]]:
    """List what is known of a pair, by the way it goes."""
    ways = {"queries": pair.queries, "keys": pair.keys, "values": pair.values}
    return [(way, value) for way, value in ways.items() if math.isfinite(value)]
