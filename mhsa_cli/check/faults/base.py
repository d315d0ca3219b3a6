"""What a fault is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Form = dict[str, str]  # stage of a `Spec` -> its wrong form


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong variant: the forms of the reference that compute it (none: only a law shows it), in plain words.

    `says` may use {D}, {H}, {d}, {T}, the roots {root_D} and {root_d}, and the facts of the law that shows it; `adds`
    is what is added in brackets, by that law's outcome. `where` is the part of the code in which it most likely sits, a
    key of `pointing.PLACES`.
    """

    title: str
    says: str
    instead: str
    where: str
    forms: tuple[Form, ...] = ()
    adds: Mapping[str, str] = field(default_factory=dict)


def fills(**form: str) -> tuple[Form, ...]:
    """Give a form with every way of filling masked scores: they differ where a softmax has nothing else to see."""
    return tuple({**form, "fill": fill} for fill in ("inf", "finite", "added"))
