"""Two runs side by side: settings, results, curves, and matched heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from mhsa_cli.records.claims import LEVEL, Status
from mhsa_cli.records.heads import Matching, Untested
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines, hanging, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed
from mhsa_cli.text import Head, typed

Names = tuple[str, str]
Labels = Mapping[Head, str]
Pair = tuple[Head, Head, float]
ONE_SEED_EACH = "one seed each: the seed alone may make this difference; a sweep over several seeds tells"
UNTESTED = {
    Untested.CUSTOM: "custom attention has none",
    Untested.SIZE: "they would have too many weights",
    Untested.NOT_FINITE: "their weights are not finite",
}


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any], names: Names, surface: Surface) -> Lines:
    """Draw the settings that differ in two columns, as YAML writes them; blank where a run has no such setting."""
    keys = dict.fromkeys([*first, *second])
    if not keys:
        return wrap_phrases(["no setting differs"], surface.width)
    rows = [[key, *(typed(run[key]) if key in run else "" for run in (first, second))] for key in keys]
    return beside("setting", rows, names, surface)


def beside(title: str, rows: Sequence[Sequence[str]], names: Names, surface: Surface) -> Lines:
    """Draw rows (what, first, second) under the names of two runs."""
    columns: list[Column[Sequence[str]]] = [Column(title, itemgetter(0), whole=True)]
    columns += [Column(name, itemgetter(i), "right", whole=True) for i, name in enumerate(names, 1)]
    return table(columns, rows, surface)


def matched_heads(
    matching: Matching, labels: tuple[Labels, Labels], names: Names, surface: Surface, note: str = ""
) -> Lines:
    """Draw the pairs with costs and labels, the unmatched heads, and what the mean cost shows.

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
            legend="cost: 0 equal maps, 1 no key in common",
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
    """Write the mean cost of the pairs, and whether random heads cost as little."""
    what, null = "cost" if len(matching.pairs) == 1 else "mean cost", matching.null_cost
    if null is None:
        reason = f": {UNTESTED[matching.untested]}" if matching.untested else ""
        return f"{what} {fixed(matching.cost, 2)}; not compared with random heads{reason}"
    shown = matching.status is Status.SHOWN
    digits = 3 if shown and fixed(matching.cost, 2) == fixed(null, 2) else 2
    lower = "lower" if shown else "not lower" if matching.cost >= null else "hardly lower"
    limit = f"{LEVEL:.0%} of those cost {fixed(null, digits)} or less"
    said = f"{what} {fixed(matching.cost, digits)}, {lower} than with random heads of the same norms ({limit})"
    return said if shown else f"{said}: the maps do not show which heads correspond"
