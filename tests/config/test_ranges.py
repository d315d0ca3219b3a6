"""Ranges of a sweep: their values by hand, and laws of the ends, the order and the digits."""

from __future__ import annotations

import math

import pytest

from mhsa_cli.config.ranges import Range, RangeError, is_range, parse_range, values


@pytest.mark.parametrize(
    ("text", "whole", "wanted"),
    [
        ("1e-3..1e-2:5:log", False, "1e-3 0.001778 0.003162 0.005623 1e-2"),
        ("1e-3..1e-2:2", False, "1e-3 1e-2"),
        ("0..0.3:4", False, "0 0.1 0.2 0.3"),
        (".5..-0.5:3:linear", False, ".5 0 -0.5"),
        ("1e-6..1e-2:3:log", False, "1e-6 0.0001 1e-2"),
        ("10000..500000:4:log", False, "10000 36840 135700 500000"),
        ("1..8:4:log", True, "1 2 4 8"),
        ("162..2:5:log", True, "162 54 18 6 2"),
        ("1..16:4", True, "1 6 11 16"),
        ("0..1:3", False, "0 0.5 1"),
        ("2..4:3", None, "2 3 4"),
        ("2.0..4:3", None, "2.0 3 4"),
        ("2.0..3:3", None, "2.0 2.5 3"),
    ],
)
def test_values_by_hand(text: str, whole: bool | None, wanted: str) -> None:
    assert is_range(text) and values(parse_range(text), whole) == wanted.split()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("ends", [("3e-4", "0.70"), ("12345.678", "0.1"), ("1e-30", "1e30")])
@pytest.mark.parametrize("steps", [2, 3, 17])
def test_values_are_even_but_for_four_digits_and_the_ends_are_as_typed(
    ends: tuple[str, str], steps: int, log: bool
) -> None:
    found = values(Range(*ends, steps, log), False)
    assert (found[0], found[-1]) == ends and len(found) == steps
    first, last = (math.log(float(end)) if log else float(end) for end in ends)
    for i, text in enumerate(found):
        exact = first + (last - first) * i / (steps - 1)
        assert float(text) == pytest.approx(math.exp(exact) if log else exact, rel=5.1e-4)
        assert 0 < i < steps - 1 or text in ends
        assert i in (0, steps - 1) or len(text.partition("e")[0].replace(".", "").strip("0")) <= 4


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("1..16:5", True),  # 4.75
        ("10..100:4:log", True),  # 21.54
        ("1..1000000000:900", True),
        ("1..1.5:2", True),
        ("0..1:3:log", False),
        ("-1..1:3:log", False),
        ("1..1.0:3", False),
        ("1..2:1", False),
        ("1..2:1001", False),
        ("1..1.001:9", False),
        ("1.0004..1.0009:3", False),  # 1.001 would be above the last
        ("1e999..1:3", False),
        ("01..2:3", False),
    ],
)
def test_what_has_no_such_values_is_refused(text: str, whole: bool) -> None:
    with pytest.raises(RangeError):
        values(parse_range(text), whole)


def test_whole_numbers_near_by_are_offered_as_a_list() -> None:
    with pytest.raises(RangeError) as caught:
        values(parse_range("10..100:4:log"), True)
    assert caught.value.hint is not None and caught.value.hint.endswith(" 10,22,46,100")


@pytest.mark.parametrize(
    "text", ["1..2", "1..2:3:exp", "a..2:3", "1:2:3", "1..2:3.5", "1..2:-3", "1,5..2:3", "../a.py:B"]
)
def test_what_has_not_the_form_is_refused(text: str) -> None:
    with pytest.raises(RangeError):
        parse_range(text)


def test_tiny_exponents_cost_nothing() -> None:
    assert values(parse_range("0e-999999999..1:3"), False) == ["0e-999999999", "0.5", "1"]
