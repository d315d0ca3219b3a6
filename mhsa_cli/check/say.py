"""Codes and facts in words: the one road from what was found to what is read."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.check.sentences import CALLS, LAWS, NOTES, OTHER_WAYS, SHARED, TRIED
from mhsa_cli.records.check import Remark


def law_name(law: str) -> str:
    """Give the name of a law."""
    return LAWS[law].name


def law_words(law: str, code: str, facts: Mapping[str, Any]) -> str:
    """Say what a law saw; nothing where it has no code."""
    return say({**SHARED, **LAWS[law].outcomes}[code], facts) if code else ""


def noted(kind: str, **facts: Any) -> Remark:
    """Make a note."""
    return Remark(kind, say(NOTES[kind], facts), facts)


def attempted(kind: str, others: int = 0, **facts: Any) -> Remark:
    """Say what was tried and what came of it; `others` counts the ways that came to the same."""
    more = say(OTHER_WAYS, {"count": others}) if others else ""
    return Remark(kind, say(TRIED[kind], {**facts, "more": more}), facts)


class CallError(Exception):
    """A candidate could not be built or called; `kind` is the reason, the message says it."""

    def __init__(self, kind: str, **facts: Any) -> None:
        super().__init__(say(CALLS[kind], facts))
        self.kind, self.facts = kind, facts


class _Words(string.Formatter):
    """Writes shapes in brackets, names in a row (of many the first ones, all with `:all`), and where outputs differ."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return difference(kwargs) if key == "place" else kwargs[str(key)]

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return format(value, format_spec)
        if all(isinstance(one, int) for one in value):
            return str(tuple(value))
        return ", ".join(value) if format_spec == "all" else listed(value)


def say(sentence: str, facts: Mapping[str, Any]) -> str:
    """Put facts into a sentence."""
    return _Words().vformat(sentence, (), facts)


def difference(facts: Mapping[str, Any]) -> str:
    """Say where two outputs differ first, with both numbers, or that their shapes do."""
    if "at" not in facts:
        return say("{found} where {wanted} is wanted", facts)
    return f"at [{', '.join(map(str, facts['at']))}] it is {both(facts['found'], facts['wanted'])}"


def both(found: float, wanted: float) -> str:
    """Write two different figures with as many digits as tell them apart; of close ones, how far they are apart."""
    for digits in range(4, 9):
        one, other = f"{found:.{digits}g}", f"{wanted:.{digits}g}"
        if one != other:
            return f"{one}, wanted {other}"
    return f"{found:.4g}, {abs(found - wanted):.1g} off"


def listed(names: Sequence[str], most: int = 2) -> str:
    """List names, of many the first ones and how many more there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
