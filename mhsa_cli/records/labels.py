"""The labels of heads: ids, which files keep and code compares, and the text shown for each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType

if TYPE_CHECKING:
    Distance = int
else:
    # From query to key in tokens, below 0 ahead of the query: files may have such numbers here alone (runs.codec).
    Distance = NewType("Distance", int)


class Role(StrEnum):
    """What a head's pattern does to the loss, as far as it was shown."""

    SHOWN = "shown"  # it helps
    HARMFUL = "harmful"
    SUPPRESSES = "suppresses"  # harmful, and it writes against the answer
    CANCELS = "cancels"  # another head undoes its effect
    REDUNDANT = "redundant"  # without effect alone, with effect where its backup heads are uniform
    OUTPUT = "output-only"  # its output has an effect, its pattern has none
    NO_EFFECT = "no-effect"
    PATTERN = "pattern"  # not measured


class Extent(StrEnum):
    """How much of a head's effect an ideal head of its label keeps, where that is not all."""

    PARTLY = "partly"
    ELSEWHERE = "elsewhere"  # none was shown


# The targets of core.heads.targets.SCORES, in the order in which labels are listed: the name of each, and what a head
# with its pattern does.
TARGETS = {
    "previous": "previous token",
    "self": "own position",
    "first": "first token",
    "offset": "offset {distance}",
    "duplicate": "duplicate token",
    "induction": "induction",
    "same": "same token",
    "modulo": "offset {distance} modulo {period}",
    "answer": "answer",
    "separator": "separator",
    "token": "token {token}",
}
ATTENDS_TO = {
    "previous": "attends to the previous token",
    "self": "attends to its own position",
    "first": "attends to the first token",
    "offset": "attends {steps} tokens {way}",
    "duplicate": "attends to other occurrences of its own token",
    "induction": "attends to tokens that followed its own before (induction)",
    "same": "attends to all occurrences of its own token, itself included",
    "modulo": "attends {distance}, {second}, {third} ... tokens back",
    "answer": "attends to the answer",
    "separator": "attends to the separator",
    "token": "attends to token {token}",
}
CONDITIONAL = ("duplicate", "induction", "answer", "separator", "token")  # some queries have no such key
ROLE_TARGETS = ("answer", "separator", "token")  # they label a head only where no other target does
SHAPES = {
    "near-uniform": "near uniform",
    "focused": "focused, no known pattern",
    "unclear": "no clear pattern",
    "dead": "dead: writes nothing",
}
ROLES = {
    Role.SHOWN: "{target}",
    Role.HARMFUL: "{target} pattern, harmful",
    Role.SUPPRESSES: "{target} pattern, suppresses the answer",
    Role.CANCELS: "{target} pattern, cancelled by another head",
    Role.REDUNDANT: "{target} (backup)",
    Role.OUTPUT: "{target} pattern, only its output matters",
    Role.NO_EFFECT: "{target} pattern, no effect shown",
    Role.PATTERN: "{target} pattern",
}
EXTENTS = {Extent.PARTLY: "partly {target}", Extent.ELSEWHERE: "{target} pattern, its effect lies elsewhere"}
# The order in which the labels of a model are listed; "" stands for patterns without a shown effect.
ORDER = (*TARGETS, "", *SHAPES)
NUMBERS = {"offset": ("distance",), "modulo": ("distance", "period"), "token": ("token",)}  # in ids, by kind


@dataclass(frozen=True, slots=True)
class Label:
    """A head's label: `kind` is a target, with a `role`, or a shape of its own.

    `distance` belongs to an offset (below 0 it is ahead of the query), `period` to one modulo a period, `token` (an id)
    to a constant token. `extent` is set where an ideal head of this label was tested and did not keep the effect. Files
    keep the `id`, for example `offset:4:no-effect`, `first:shown:partly` or `focused`.
    """

    kind: str
    role: Role | None = None
    distance: int | None = None
    period: int | None = None
    token: int | None = None
    extent: Extent | None = None

    @property
    def target(self) -> str | None:
        """The target's id; None for a shape."""
        return self.kind if self.kind in TARGETS else None

    @property
    def numbers(self) -> dict[str, int | None]:
        """The numbers that belong to its target."""
        return {name: getattr(self, name) for name in NUMBERS.get(self.kind, ())}

    @property
    def id(self) -> str:
        """The label in files."""
        parts = (self.kind, *self.numbers.values(), self.role, self.extent)
        return ":".join(str(part) for part in parts if part is not None)

    @property
    def names_effect(self) -> bool:
        """Whether it says what the head's effect comes from: shown to help, and not by another part of its pattern."""
        return self.role is Role.SHOWN and self.extent is None

    @property
    def plain(self) -> Label:
        """The label of its target alone."""
        return replace(self, role=Role.SHOWN, extent=None)

    @property
    def pattern(self) -> str:
        """The target on screen."""
        return TARGETS[self.kind].format(**self.numbers)

    @property
    def text(self) -> str:
        """The label on screen."""
        if self.role is None:
            return SHAPES[self.kind]
        words = ROLES[self.role]
        if self.role is Role.SHOWN and self.extent is not None:
            words = EXTENTS[self.extent]
        return words.format(target=self.pattern)

    @property
    def attends_to(self) -> str:
        """What a head of this target does, as a predicate."""
        first, period = self.distance or 0, self.period or 0
        later = {"second": first + period, "third": first + 2 * period, "steps": abs(first)}
        words = ATTENDS_TO[self.kind].format(**self.numbers, **later, way="ahead" if first < 0 else "back")
        return words.replace(" 1 tokens", " 1 token")

    @property
    def _order(self) -> tuple[int, int, tuple[int, ...], str]:
        effect_shown = self.role is None or self.names_effect
        role = "" if self.role is None else f"{list(Role).index(self.role)}{self.extent or ''}"
        numbers = tuple(number or 0 for number in self.numbers.values())
        return ORDER.index(self.kind if effect_shown else ""), ORDER.index(self.kind), numbers, role

    @classmethod
    def from_id(cls, text: object) -> Label | None:
        """Read an id; None if it is none."""
        if not isinstance(text, str):
            return None
        kind, *parts = text.split(":")
        if kind in SHAPES:
            return None if parts else cls(kind)
        names = NUMBERS.get(kind, ())
        if kind not in TARGETS or len(parts) < len(names):
            return None
        numbers, rest = parts[: len(names)], parts[len(names) :]
        ahead = kind == "offset" and numbers[0][:1] == "-"
        if not all(map(_NUMBER.fullmatch, [numbers[0][1:]] if ahead else numbers)) or not 1 <= len(rest) <= 2:
            return None
        if rest[0] not in list(Role) or rest[1:] not in ([], *([extent] for extent in Extent)):
            return None
        extent = Extent(rest[1]) if rest[1:] else None
        return cls(kind, Role(rest[0]), **dict(zip(names, map(int, numbers), strict=True)), extent=extent)


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
    return ("; " if any(map(_has_comma, counts)) else ", ").join(parts) or "no labels"


def _has_comma(label: Label) -> bool:
    plain_roles = (None, Role.SHOWN, Role.REDUNDANT, Role.PATTERN)
    return label.kind == "focused" or label.extent is Extent.ELSEWHERE or label.role not in plain_roles
