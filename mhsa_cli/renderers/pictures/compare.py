"""Two runs beside each other: settings, figures, curves, and which head goes with which."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from mhsa_cli.records import Matching
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM, PLAIN
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.text import Head, escape

Names = tuple[str, str]
Labels = Mapping[Head, str]
SAME = 0.005  # a cost that is written as 0
HARDLY = 0.02  # a best pairing is never above random ones: a smaller gain tells nothing


def comparison(parts: Sequence[Lines]) -> Lines:
    """Set the parts of a comparison under each other, an empty line between them."""
    lines: list[Text] = []
    for part in parts:
        lines += [*([Text()] if lines else []), *part]
    return Lines(lines)


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any], names: Names, surface: Surface) -> Lines:
    """Set the settings that differ in two columns, as YAML writes them; blank where a run has no such setting."""
    keys = list(dict.fromkeys([*first, *second]))
    if not keys:
        return _words("the configs are equal", surface.width)
    rows = [[key, *(_value(run[key]) if key in run else "" for run in (first, second))] for key in keys]
    return beside("differs", rows, names, surface)


def beside(title: str, rows: Sequence[Sequence[str]], names: Names, surface: Surface) -> Lines:
    """Set rows (what, first, second) under the names of two runs."""
    columns = [Column(title, whole=True), *(Column(escape(name), "right", whole=True) for name in names)]
    return table(columns, rows, surface)


def matched_heads(
    matching: Matching, labels: tuple[Labels, Labels], names: Names, surface: Surface, note: str = ""
) -> Lines:
    """List the pairs with their costs and, where there are any, labels; the heads left over; and what it means.

    `note` is what else must be known of the maps.
    """
    width = surface.width
    labelled = any(labels)
    columns, rows = [], []
    for number, name in enumerate(names):
        columns.append(Column(escape(name), whole=True))
        columns += [Column("looks at", wraps=True, drop=2 - number)] if labelled else []
    for first, second, cost in matching.pairs:
        cells = [
            [str(head), *([own.get(head, "")] if labelled else [])]
            for head, own in zip((first, second), labels, strict=True)
        ]
        rows.append([*cells[0], *cells[1], fixed(cost, 2)])
    told = _words(f"heads matched by their maps on {matching.inputs}", width)
    told += _words(note, width) if note else Lines([])
    told += table([*columns, Column("cost", "right")], rows, surface)
    for name, heads in zip(names, (matching.unmatched_first, matching.unmatched_second), strict=True):
        if heads:
            told += _words(f"unmatched in {name}: {', '.join(map(str, heads))}", width)
    return told + _words(matching_sentence(matching), width) + _notes(matching, width)


def unmatched(reason: str, width: int) -> Lines:
    """Say in words why there are no pairs."""
    return _words(f"heads cannot be matched: {reason}", width)


def matching_sentence(matching: Matching) -> str:
    """Say how well the heads go together, beside what random pairings come to."""
    said = f"mean cost {fixed(matching.cost, 2)}; random pairings: {fixed(matching.random_cost, 2)}"
    alone = len(matching.pairs) == 1 and not matching.unmatched_first and not matching.unmatched_second
    if alone:
        return f"cost {fixed(matching.cost, 2)}; each run has one head, so there is no other pairing to compare it with"
    if matching.random_cost < SAME:
        return f"{said}. All these heads have the same maps: any pairing fits"
    if matching.random_cost - matching.cost < HARDLY:
        return f"{said}. That is hardly lower: these maps do not tell which head belongs to which"
    return said


def _notes(matching: Matching, width: int) -> Lines:
    notes = ["cost: 0 the same map, 1 no key in common"]
    if matching.random_cost - matching.cost >= HARDLY:
        notes.append("the best pairing never costs more than random ones, whatever the heads do")
    return Lines(wrap_phrases([[(note, DIM)] for note in notes], width))


def _words(text: str, width: int) -> Lines:
    return Lines(wrap_phrases([[(escape(text), PLAIN)]], width))


def _value(value: Any) -> str:
    """Write a setting as a config would: null, true, 0.005, [0.9, 0.999], text without quotes."""
    return value if isinstance(value, str) else json.dumps(value)
