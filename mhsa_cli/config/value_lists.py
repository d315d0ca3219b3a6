"""How several values for one key are written on the command line: with commas between them, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mhsa_cli.config.aliases import setting
from mhsa_cli.config.problems import clip
from mhsa_cli.config.pydantic_errors import all_keys, is_list, is_text

SEED_LIST_REFUSED = ("`train.seed` may not be a list here", "write --seeds N: N seeds from `train.seed` on")
_CLOSING = {"[": "]", "{": "}"}
_QUOTE = re.compile(r"""'(?:[^']|'')*'?|"(?:\\.|[^"\\])*"?""", re.DOTALL)  # or to the end, where none closes it
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WRAPPED = re.compile(r"\w*[\[({](.*)[\])}]")
_RANGE = re.compile(r"range\((\d{1,4})(?:,(\d{1,4}))?(?:,([1-9]\d{0,3}))?\)")
_FEW = 12  # values of a range that are written out


def bracketed_list_problem(key: str, text: str) -> tuple[str, str] | None:
    """Say what is wrong with a value in brackets or one to be computed, and how it is written; None for any other.

    Brackets belong to the values of keys that take a list, and any character to those that take text.
    """
    dotted = setting(key, all_keys())
    if dotted is None or is_text(path := tuple(dotted.split("."))):
        return None
    signs = "(){}" if is_list(path) else "()[]{}"
    if not any(sign in _QUOTED.sub("", text) for sign in signs):
        return None
    if dotted == "train.seed":
        return SEED_LIST_REFUSED
    message = f"`{dotted}`: found `{clip(text.strip())}`, wanted values with commas between them"
    if is_list(path):
        return message, f"for example {key}=[0.9,0.95],[0.9,0.999]"
    values = _values(text.replace(" ", ""))
    return f"{message}, without brackets", f"write {key}={values}" if values else "for example train.lr=1e-3,3e-3"


def _values(text: str) -> str | None:
    """Write out what was meant, where that is certain."""
    if span := _RANGE.fullmatch(text):
        first, last, step = span.groups()
        numbers = range(0 if last is None else int(first), int(last or first), int(step or 1))
        return ",".join(map(str, numbers)) if 0 < len(numbers) <= _FEW else None
    inside = _WRAPPED.fullmatch(text)
    plain = inside is not None and re.fullmatch(r"[-+.\w]+(,[-+.\w]+)*", inside[1], re.ASCII)
    return inside[1] if inside and plain and not text[0].isalpha() else None


def split_values(text: str) -> list[tuple[int, str]]:
    """Split at the commas outside [], {} and quotes; each item with the place (from 0) of its first character."""
    items: list[tuple[int, str]] = []
    start = 0
    for comma in [*_commas(text), len(text)]:
        item = text[start:comma]
        items.append((start + len(item) - len(item.lstrip()), item.strip()))
        start = comma + 1
    return items


def _commas(text: str) -> Iterator[int]:
    closing: list[str] = []
    before = ","  # the last character that is no space: a quote opens only where a value may begin
    at = 0
    while at < len(text):
        char = text[at]
        if before in ",[{:" and (quote := _QUOTE.match(text, at)):
            at = quote.end() - 1
        elif char in _CLOSING:
            closing.append(_CLOSING[char])
        elif closing and char == closing[-1]:
            closing.pop()
        elif char == "," and not closing:
            yield at
        before = before if char == " " else char
        at += 1
