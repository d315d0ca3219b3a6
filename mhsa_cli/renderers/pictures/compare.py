"""Two runs beside each other: settings, figures, curves, and which head goes with which."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from mhsa_cli.records.heads import Matching
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import DIM
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, paragraphs, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.text import Head

Names = tuple[str, str]
Labels = Mapping[Head, str]
Pair = tuple[Head, Head, float]
SAME = 0.005  # a cost that is written as 0
HARDLY = 0.02  # a best pairing is never above random ones: a smaller gain tells nothing


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any], names: Names, surface: Surface) -> Lines:
    """Set the settings that differ in two columns, as YAML writes them; blank where a run has no such setting."""
    keys = dict.fromkeys([*first, *second])
    if not keys:
        return wrap_phrases(["the configs are equal"], surface.width)
    rows = [[key, *(_value(run[key]) if key in run else "" for run in (first, second))] for key in keys]
    return beside("differs", rows, names, surface)


def beside(title: str, rows: Sequence[Sequence[str]], names: Names, surface: Surface) -> Lines:
    """Set rows (what, first, second) under the names of two runs."""
    columns: list[Column[Sequence[str]]] = [Column(title, itemgetter(0), whole=True)]
    columns += [Column(name, itemgetter(i), "right", whole=True) for i, name in enumerate(names, 1)]
    return table(columns, rows, surface)


def matched_heads(
    matching: Matching, labels: tuple[Labels, Labels], names: Names, surface: Surface, note: str = ""
) -> Lines:
    """List the pairs with their costs and, where there are any, labels; the heads left over; and what it means.

    `note` is what else must be known of the maps.
    """
    (first, second), (own, other) = names, labels
    columns: list[Column[Pair]] = [
        Column(first, lambda pair: str(pair[0]), whole=True),
        Column("looks at", lambda pair: own.get(pair[0], ""), wraps=True, drop=2, when=any(labels)),
        Column(second, lambda pair: str(pair[1]), whole=True),
        Column("looks at", lambda pair: other.get(pair[1], ""), wraps=True, drop=1, when=any(labels)),
        Column("cost", lambda pair: fixed(pair[2], 2), "right"),
    ]
    told = [f"heads matched by their maps on {matching.inputs}", note]
    left = zip(names, (matching.unmatched_first, matching.unmatched_second), strict=True)
    after = [f"unmatched in {name}: {', '.join(map(str, heads))}" for name, heads in left if heads]
    return (
        paragraphs(told, surface.width)
        + table(columns, matching.pairs, surface)
        + paragraphs([*after, matching_sentence(matching)], surface.width)
        + _notes(matching, surface)
    )


def unmatched(reason: str, surface: Surface) -> Lines:
    """Say in words why there are no pairs."""
    return wrap_phrases([f"heads cannot be matched: {reason}"], surface.width)


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


def _notes(matching: Matching, surface: Surface) -> Lines:
    notes = ["cost: 0 the same map, 1 no key in common"]
    if matching.random_cost - matching.cost >= HARDLY:
        notes.append("the best pairing never costs more than random ones, whatever the heads do")
    return wrap_phrases(notes, surface.width, DIM)


def _value(value: Any) -> str:
    """Write a setting as a config would: null, true, 0.005, [0.9, 0.999], text without quotes."""
    return value if isinstance(value, str) else json.dumps(value)
