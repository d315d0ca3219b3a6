"""What a fault is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mhsa_cli.check.locate.anatomy import Rule
from mhsa_cli.check.read.reference import ROPES

Form = dict[str, str]  # stage of a `Spec` -> its wrong form


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong variant: where it sits, the forms of the reference that compute it (none: only a law shows it), in words.

    `where` points at the part of the code in which it most likely sits. `says` may use {D}, {H}, {d}, {T}, the roots
    {root_D} and {root_d}, and the facts of the law that shows it; `adds` is what is added in brackets, by that law's
    outcome.
    """

    title: str
    where: Rule
    forms: tuple[Form, ...]
    says: str
    instead: str
    adds: Mapping[str, str] = field(default_factory=dict)


def fills(**form: str) -> tuple[Form, ...]:
    """Give a form with every way of filling masked scores: they differ where a softmax has nothing else to see."""
    return tuple({**form, "fill": fill} for fill in ("inf", "finite", "added"))


def turns(*hows: str) -> tuple[Form, ...]:
    """Give wrong ways to rotate, in both layouts of the pairs."""
    return tuple({"rope": f"{layout}:{how}"} for layout in ROPES for how in hows)
