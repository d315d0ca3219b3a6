"""Two runs side by side: settings, results, curves, and matched heads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from mhsa_cli.records.heads import Matching
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.text import Head

Names = tuple[str, str]
Labels = Mapping[Head, str]
Pair = tuple[Head, Head, float]
SAME = 0.005  # a cost that is written as 0
HARDLY = 0.02  # a best pairing is never above random ones: a smaller gain shows nothing


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any], names: Names, surface: Surface) -> Lines:
    """Draw the settings that differ in two columns, as YAML writes them; blank where a run has no such setting."""
    keys = dict.fromkeys([*first, *second])
    if not keys:
        return wrap_phrases(["no setting differs"], surface.width)
    rows = [[key, *(_value(run[key]) if key in run else "" for run in (first, second))] for key in keys]
    return beside("setting", rows, names, surface)


def beside(title: str, rows: Sequence[Sequence[str]], names: Names, surface: Surface) -> Lines:
    """Draw rows (what, first, second) under the names of two runs."""
    columns: list[Column[Sequence[str]]] = [Column(title, itemgetter(0), whole=True)]
    columns += [Column(name, itemgetter(i), "right", whole=True) for i, name in enumerate(names, 1)]
    return table(columns, rows, surface)


def matched_heads(
    matching: Matching, labels: tuple[Labels, Labels], names: Names, surface: Surface, note: str = ""
) -> Lines:
    """Draw the pairs with costs and labels, the unmatched heads, and the mean cost beside that of random pairings.

    `note` is a reservation about the maps.
    """
    (first, second), (own, other) = names, labels
    columns: list[Column[Pair]] = [
        Column(first, lambda pair: str(pair[0]), whole=True),
        Column("pattern", lambda pair: own.get(pair[0], ""), wraps=True, drop=1, when=any(labels)),
        Column(second, lambda pair: str(pair[1]), whole=True),
        Column("pattern", lambda pair: other.get(pair[1], ""), wraps=True, drop=1, when=any(labels)),
        Column(
            "cost",
            lambda pair: fixed(pair[2], 2),
            "right",
            legend="cost: 0 equal maps, 1 no key in common\nan optimal matching never costs more than a random one",
        ),
    ]
    left = zip(names, (matching.unmatched_first, matching.unmatched_second), strict=True)
    before = [f"heads matched by their attention maps on {matching.inputs}", *([note] if note else [])]
    after = [f"unmatched in {name}: {', '.join(map(str, heads))}" for name, heads in left if heads]
    lines = Lines(line for text in before for line in hanging(text, surface.width))
    lines += table(columns, matching.pairs, surface)
    return lines + [line for text in [*after, matching_sentence(matching)] for line in hanging(text, surface.width)]


def unmatched(reason: str, surface: Surface) -> Lines:
    """Write why there are no pairs."""
    return wrap_phrases([f"heads not matched: {reason}"], surface.width)


def matching_sentence(matching: Matching) -> str:
    """Write how well the heads match, beside random pairings."""
    if len(matching.pairs) == 1 and not matching.unmatched_first and not matching.unmatched_second:
        return f"cost {fixed(matching.cost, 2)}; with one head each there is no other pairing"
    costs = f"mean cost {fixed(matching.cost, 2)}; random pairings: {fixed(matching.random_cost, 2)}"
    if matching.random_cost < SAME:
        return f"{costs}; all maps are equal, any pairing fits"
    if matching.random_cost - matching.cost < HARDLY:
        return f"{costs}; hardly lower, so the maps do not identify the heads"
    return costs


def _value(value: Any) -> str:
    """Write a setting as a config would: null, true, 0.005, [0.9, 0.999], text without quotes."""
    return value if isinstance(value, str) else json.dumps(value)
