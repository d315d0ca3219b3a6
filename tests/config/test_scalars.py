from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mhsa_cli.config.scalars import ScalarError, resolve, write


@pytest.mark.parametrize(
    ("word", "value"),
    [("1e-3", 0.001), ("1e3", 1000.0), ("1E-3", 0.001), ("1.5e3", 1500.0), ("5e-4", 0.0005), (".5", 0.5), ("2.", 2.0)],
)
def test_exponents_are_floats_without_a_dot(word: str, value: float) -> None:
    assert resolve(word) == value
    assert isinstance(resolve(word), float)


@pytest.mark.parametrize(
    "word", ["no", "yes", "on", "off", "y", "12:30", "2024-01-01", "2024-13-45", "1_000", "inf", "e5"]
)
def test_words_of_old_yaml_are_text(word: str) -> None:
    assert resolve(word) == word


@pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
def test_nulls(word: str) -> None:
    assert resolve(word) is None


def test_booleans_are_true_and_false_only() -> None:
    assert [resolve(word) for word in ("true", "False", "TRUE")] == [True, False, True]


def test_integers_keep_their_sign() -> None:
    assert [resolve(word) for word in ("17", "-4", "+9", "0", "-0")] == [17, -4, 9, 0, 0]


@pytest.mark.parametrize(("word", "hint"), [("010", "write 10"), ("-07", "write -7"), ("00", "write 0")])
def test_leading_zeros_are_refused(word: str, hint: str) -> None:
    with pytest.raises(ScalarError) as caught:
        resolve(word)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("word", "hint"), [("0x20", "write 32"), ("0o10", "write 8"), ("0b11", "write 3"), ("-0X1f", "write -31")]
)
def test_other_bases_are_refused_with_the_decimal_number(word: str, hint: str) -> None:
    with pytest.raises(ScalarError) as caught:
        resolve(word)
    assert caught.value.hint == hint


def test_endless_integers_are_refused_before_int_sees_them() -> None:
    with pytest.raises(ScalarError):
        resolve("9" * 5000)
    assert resolve("9" * 20) == 10**20 - 1


def test_special_floats_are_read_for_the_schema_to_refuse() -> None:
    assert math.isnan(resolve(".nan"))
    assert [resolve(word) for word in (".inf", "-.Inf")] == [math.inf, -math.inf]


def test_floats_are_written_so_that_yaml_1_1_reads_them() -> None:
    assert [write(value) for value in (0.005, 1e-05, 1.5e-07, 1e20)] == ["0.005", "1.0e-05", "1.5e-07", "1.0e+20"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_written_floats_survive_both_versions(value: float) -> None:
    assert resolve(write(value)) == value
    assert yaml.safe_load(write(value)) == value


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_written_text_survives_a_yaml_1_1_reader(value: str) -> None:
    assert yaml.safe_load(f"k: {write(value)}")["k"] == value


@pytest.mark.parametrize(
    "word", ["no", "yes", "On", "null", "12:30", "1e3", "0x1", "~", "", "a b", "- a", "#x", "true"]
)
def test_text_that_some_version_misreads_is_quoted(word: str) -> None:
    assert write(word).startswith('"')


def test_plain_words_and_paths_stay_plain() -> None:
    assert [write(word) for word in ("softmax", "none", "data/a-b_c.txt")] == ["softmax", "none", "data/a-b_c.txt"]
