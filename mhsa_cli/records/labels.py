"""What a head is called: the name as a fact, which is kept and compared, and the words that are shown for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """What is known of a head that looks at a target: it was measured to matter, or it only looks there."""

    NAMED = "named"
    LOOKS = "looks"
    IDLE = "idle"
    STAND_INS = "stand-ins"


TARGETS = {
    "previous": "previous token",
    "self": "itself",
    "first": "first token",
    "offset": "offset {distance}",
    "duplicate": "duplicate token",
    "induction": "induction",
}
SHAPES = {"spread": "spread", "sharp": "sharp, unnamed", "undecided": "undecided"}
ROLES = {
    Role.NAMED: "{target}",
    Role.LOOKS: "looks like {target}",
    Role.IDLE: "looks like {target}, but idle",
    Role.STAND_INS: "looks like {target}, with stand-ins",
}
# In which order the heads of a model are listed; "" stands for all that only look like something.
ORDER = ("duplicate", "first", "induction", "self", "", "offset", "previous", "sharp", "spread", "undecided")


@dataclass(frozen=True, slots=True)
class Label:
    """A head's name. `kind` is the target's id with a `role`, or the shape of a head that no target names.

    `distance` is the offset's. Files keep the `id`, for example `offset:4:idle` or `sharp`.
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
        """The label as files keep it."""
        return ":".join(str(part) for part in (self.kind, self.distance, self.role) if part is not None)

    @property
    def text(self) -> str:
        """The label in words."""
        if self.role is None:
            return SHAPES[self.kind]
        return ROLES[self.role].format(target=TARGETS[self.kind].format(distance=self.distance))

    @property
    def _order(self) -> tuple[int, int, int, str]:
        looks = self.role not in (None, Role.NAMED)
        role = "" if self.role is None else str(list(Role).index(self.role))
        return ORDER.index("" if looks else self.kind), ORDER.index(self.kind), self.distance or 0, role

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

    @classmethod
    def from_words(cls, text: object) -> Label | None:
        """Find the label of these words, which is all that older files have; None if there is none."""
        number = _NUMBER.search(text) if isinstance(text, str) else None
        distance = None if number is None else int(number[0])
        looks = [cls(kind, role, distance if kind == "offset" else None) for kind in TARGETS for role in Role]
        return next((label for label in [*map(cls, SHAPES), *looks] if label.text == text), None)


_NUMBER = re.compile(r"[0-9]{1,9}")


def in_order(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Put the labels of a model's heads in the order in which they are listed."""
    return tuple(sorted(labels, key=lambda label: label._order))


def set_order(labels: Iterable[Label]) -> list[Any]:
    """Give what sorts the label sets of models."""
    counts = Counter(in_order(labels))
    return [(count == 1, count, label._order) for label, count in counts.items()]  # as texts: numbers come first


def set_words(labels: Iterable[Label]) -> str:
    """Write the labels of a model's heads as one text, whatever their order: "previous token, 3 x spread"."""
    counts = Counter(in_order(labels))
    parts = [label.text if count == 1 else f"{count} x {label.text}" for label, count in counts.items()]
    second = any(label.kind == "sharp" or label.role in (Role.IDLE, Role.STAND_INS) for label in counts)
    return ("; " if second else ", ").join(parts) or "no labels"  # the words of some have a comma of their own
