"""What a fault is."""

from __future__ import annotations

from dataclasses import dataclass

Form = dict[str, str]  # stage of a `Spec` -> its wrong form


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong variant: the forms of the reference that compute it (none: only a law shows it), in plain words.

    `says` and `instead` may use {D}, {H}, {d}, {T} and their roots {root_D} and {root_d}, and {seen}. `where` is the
    part of the code in which it most likely sits, a key of `pointing.PLACES`.
    """

    says: str
    instead: str
    where: str
    forms: tuple[Form, ...] = ()


def fills(**form: str) -> tuple[Form, ...]:
    """Give a form with every way of filling masked scores: they differ where a softmax has nothing else to see."""
    return tuple({**form, "fill": fill} for fill in ("inf", "finite", "added"))
