"""Unquoted YAML scalars by the YAML 1.2 core schema, and values written so that 1.1 readers agree."""

from __future__ import annotations

import re
from typing import Any

MAX_DIGITS = 20  # int() refuses some thousands

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_OTHER_BASE = re.compile(r"[-+]?0[xX][0-9a-fA-F]+\Z|[-+]?0[oO][0-7]+\Z|[-+]?0[bB][01]+\Z")

# Words that every YAML version reads as text.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class ScalarError(ValueError):
    """An ambiguous scalar; `hint` says how to write it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def resolve(text: str) -> Any:
    """Read an unquoted scalar as null, bool, int, float or, if it is none, text.

    `no`, `on`, `12:30` and dates are text; `1e-3` is a float. Raises: ScalarError for leading zeros, other bases and
    integers that are too long.
    """
    if text in NULLS:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.match(text):
        return _integer(text)
    if _FLOAT.match(text):
        return float(text)
    if special := _SPECIAL.match(text):
        return float("nan") if special.group(3) else float(special.group(1) + "inf")
    if _OTHER_BASE.match(text):
        names = {"x": "a hexadecimal", "o": "an octal", "b": "a binary"}
        kind = names[text.lstrip("+-")[1].lower()]
        value = f"{int(text, 0)}" if len(text) <= MAX_DIGITS else "the decimal number"
        raise ScalarError(f"found {kind} number, wanted a decimal one", f"write {value}")
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    if len(digits) > MAX_DIGITS:
        raise ScalarError(f"found a whole number of {len(digits):,} digits", f"at most {MAX_DIGITS} digits are read")
    if len(digits) > 1 and digits[0] == "0":
        message = "found a leading zero: it means octal to some YAML readers and decimal to others"
        raise ScalarError(message, f"write {int(text)} without the zero, or quote it if it is text")
    return int(text)


def write(value: Any) -> str:
    """Write a value on one line so that YAML 1.1 and 1.2 readers read it back equal."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    return "[" + ", ".join(write(item) for item in value) + "]"


def _float(value: float) -> str:
    # YAML 1.1 reads 1e-05 as text: the mantissa needs a dot.
    mantissa, e, exponent = repr(value).partition("e")
    return mantissa if not e else f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"


def _text(value: str) -> str:
    if _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
