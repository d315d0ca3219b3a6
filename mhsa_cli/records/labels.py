"""The labels of heads: ids, which files keep and code compares, and the text shown for each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """What was measured of the effect of a head whose pattern is a target's."""

    SHOWN = "shown"
    PATTERN = "pattern"  # its effect was not measured
    NO_EFFECT = "no-effect"
    REDUNDANT = "redundant"


# The targets of core.heads.targets.SCORES, in the order in which labels are listed: the name of each, and what a head
# with its pattern does.
TARGETS = {
    "previous": "previous token",
    "self": "own position",
    "first": "first token",
    "offset": "offset {distance}",
    "duplicate": "duplicate token",
    "induction": "induction",
}
ATTENDS_TO = {
    "previous": "attends to the previous token",
    "self": "attends to its own position",
    "first": "attends to the first token",
    "offset": "attends {distance} tokens back",
    "duplicate": "attends to earlier occurrences of its own token",
    "induction": "attends to the token after earlier occurrences of its own (induction)",
}
SHAPES = {
    "near-uniform": "near uniform",
    "focused": "focused, no known pattern",
    "unclear": "no clear pattern",
}
ROLES = {
    Role.SHOWN: "{target}",
    Role.PATTERN: "{target} pattern",
    Role.NO_EFFECT: "{target} pattern, no effect shown",
    Role.REDUNDANT: "{target} pattern, redundant",
}
# The order in which the labels of a model are listed; "" stands for patterns without a shown effect.
ORDER = (*TARGETS, "", *SHAPES)


@dataclass(frozen=True, slots=True)
class Label:
    """A head's label: `kind` is a target, with a `role` (and the `distance` of an offset), or a shape of its own.

    Files keep the `id`, for example `offset:4:no-effect` or `focused`.
    """

    kind: str
    role: Role | None = None
    distance: int | None = None

    @property
    def target(self) -> str | None:
        """The target's id; None for a shape."""
        return self.kind if self.kind in TARGETS else None

    @property
    def id(self) -> str:
        """The label in files."""
        return ":".join(str(part) for part in (self.kind, self.distance, self.role) if part is not None)

    @property
    def text(self) -> str:
        """The label on screen."""
        if self.role is None:
            return SHAPES[self.kind]
        return ROLES[self.role].format(target=TARGETS[self.kind].format(distance=self.distance))

    @property
    def _order(self) -> tuple[int, int, int, str]:
        effect_shown = self.role in (None, Role.SHOWN)
        role = "" if self.role is None else str(list(Role).index(self.role))
        return ORDER.index(self.kind if effect_shown else ""), ORDER.index(self.kind), self.distance or 0, role

    @classmethod
    def from_id(cls, text: object) -> Label | None:
        """Read an id; None if it is none."""
        match text.split(":") if isinstance(text, str) else []:
            case [kind] if kind in SHAPES:
                return cls(kind)
            case [kind, role] if kind in TARGETS and role in list(Role):
                return cls(kind, Role(role))
            case [kind, distance, role] if kind in TARGETS and role in list(Role) and _NUMBER.fullmatch(distance):
                return cls(kind, Role(role), int(distance))
        return None


_NUMBER = re.compile(r"[0-9]{1,9}")


def in_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Sort the labels of a model's heads."""
    return tuple(sorted(labels, key=lambda label: label._order))


def set_order(labels: Iterable[Label]) -> list[Any]:
    """Return the sort key of a model's labels."""
    counts = Counter(in_order(labels))
    return [(count == 1, count, label._order) for label, count in counts.items()]  # as texts: numbers come first


def set_words(labels: Iterable[Label]) -> str:
    """Write the labels of a model's heads, sorted: "previous token, 3 x near uniform"."""
    counts = Counter(in_order(labels))
    parts = [label.text if count == 1 else f"{count} x {label.text}" for label, count in counts.items()]
    has_comma = any(label.kind == "focused" or label.role in (Role.NO_EFFECT, Role.REDUNDANT) for label in counts)
    return ("; " if has_comma else ", ").join(parts) or "no labels"
