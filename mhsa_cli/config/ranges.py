"""Ranges of numbers: `FROM..TO:STEPS[:log]` on the command line, `{from, to, steps, scale}` in a file."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from mhsa_cli.config.scalars import ScalarError, resolve

DIGITS = 4  # significant digits of the values between the ends, so that tables stay readable
MOST = 1000  # values of a range
SCALES = ("linear", "log")
KEYS = ("from", "to", "steps", "scale")  # of a range in a file, the last with a default
FORM = "FROM..TO:STEPS or FROM..TO:STEPS:log"
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER}):([0-9]{{1,9}})(?::([a-z]+))?")
_FEW = 12  # values that a hint writes out


class RangeError(ValueError):
    """A range without values; `hint` is the way out."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Range:
    """`steps` values from `first` to `last`, the ends as typed; by equal differences, or equal ratios with `log`."""

    first: str
    last: str
    steps: int
    log: bool = False

    def __str__(self) -> str:
        return f"{{from: {self.first}, to: {self.last}, steps: {self.steps}, scale: {SCALES[self.log]}}}"


def is_range(text: str) -> bool:
    """Return whether a text has the form of a range on the command line."""
    return _RANGE.fullmatch(text.strip()) is not None


def parse_range(text: str) -> Range:
    """Read `FROM..TO:STEPS[:log]`. Raises: RangeError."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or found[4] not in (None, *SCALES):
        raise RangeError(f"wanted a range as {FORM}", "for example train.lr=1e-3..1e-2:5:log")
    return Range(found[1], found[2], int(found[3]), found[4] == "log")


def values(span: Range, whole: bool | None) -> list[str]:
    """List the values as text, the ends as typed, those of a `whole` range exact and others rounded to 4 digits.

    With `whole` None, for a setting of unknown kind, the ends decide. Raises: RangeError.
    """
    ends = [_number(span.first), _number(span.last)]
    if whole is None:
        whole = all(isinstance(end, int) for end in ends)
    if whole and not all(isinstance(end, int) for end in ends):
        raise RangeError("the ends are not whole numbers, as the setting wants")
    if not 2 <= span.steps <= MOST:
        raise RangeError(f"found {span.steps:,} steps, wanted 2 to {MOST:,}: the number of values, both ends included")
    if ends[0] == ends[1]:
        raise RangeError("both ends are equal, wanted two numbers")
    if span.log and min(ends) <= 0:
        raise RangeError("a log scale needs ends above 0", "use a linear scale, or another end")
    inner = _log(span) if span.log else _linear(span)
    texts = _whole(span, inner) if whole else [f"{float(f'{value:.{DIGITS}g}'):.15g}" for value in map(float, inner)]
    found = [span.first, *texts, span.last]
    numbers = sorted(map(float, found), reverse=ends[0] > ends[1])
    if list(map(float, found)) != numbers or len(set(numbers)) < span.steps:
        raise RangeError(f"{span.steps:,} values are not different when rounded to {DIGITS} digits", "use fewer steps")
    return found


def _number(text: str) -> int | float:
    try:
        number = resolve(text)
    except ScalarError as error:
        raise RangeError(str(error), error.hint) from None
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
        raise RangeError("the ends of a range are finite numbers")
    return number


def _ends(span: Range) -> tuple[Fraction, Fraction]:
    return Fraction(repr(_number(span.first))), Fraction(repr(_number(span.last)))


def _linear(span: Range) -> list[Fraction]:
    first, last = _ends(span)
    return [first + (last - first) * i / (span.steps - 1) for i in range(1, span.steps - 1)]


def _log(span: Range) -> list[Fraction]:
    first, last = _ends(span)
    n = span.steps - 1
    inner = [float(first) ** (1 - i / n) * float(last) ** (i / n) for i in range(1, n)]
    whole = [Fraction(round(value)) for value in inner]
    if n < 64 and all(value**n == first ** (n - i) * last**i for i, value in enumerate(whole, 1)):
        return whole  # powers, exactly
    return [Fraction(value) for value in inner]


def _whole(span: Range, inner: list[Fraction]) -> list[str]:
    """Write whole numbers. Raises: RangeError where a value is none."""
    near = list(dict.fromkeys([span.first, *(str(round(value)) for value in inner), span.last]))
    wrong = next((value for value in inner if value.denominator > 1), None)
    if wrong is not None:
        listed = f"or write a list of values: {','.join(near)}" if len(near) <= _FEW else None
        message = f"{float(wrong):.{DIGITS}g} is one of the values, wanted whole numbers"
        raise RangeError(message, f"change the steps, {listed}" if listed else "use fewer steps")
    return near[1:-1]
