"""Suggestions for misspelt words: only words that are one slip away."""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 4  # letters of a word in which one may be wrong: of three, one letter is a third of the meaning


def near(word: str, known: Iterable[str], shortest: int = SHORTEST) -> list[str]:
    """List the known words with the letters of `word`, or else one slip away; case, `_` and `-` do not count."""
    typed = _letters(word)
    pairs = [(name, _letters(name)) for name in known]
    same = [name for name, letters in pairs if letters == typed]
    return same or [name for name, letters in pairs if _is_slip(typed, letters, shortest)]


def nearest(word: str, known: Iterable[str], shortest: int = SHORTEST) -> str | None:
    """Return the only known word that is near `word`; None if there is none, or more than one."""
    found = near(word, known, shortest)
    return found[0] if len(found) == 1 else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the suggestion of the only known word that is near; None if there is none, or more than one."""
    close = nearest(word, known)
    return f"did you mean `{close}`?" if close else None


def _letters(word: str) -> str:
    return word.strip().lower().replace("_", "").replace("-", "")


def _is_slip(one: str, other: str, shortest: int) -> bool:
    """Return whether one letter after the first differs, two neighbours are swapped, or one is the plural."""
    short, long = sorted((one, other), key=len)
    if len(short) >= SHORTEST - 1 and short + "s" == long:
        return True
    if len(short) < shortest or len(long) - len(short) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return at > 0 and short[at:] == long[at + 1 :]
    replaced = at > 0 and short[at + 1 :] == long[at + 1 :]
    swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return replaced or swapped
