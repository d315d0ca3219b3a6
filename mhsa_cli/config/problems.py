"""What is wrong with a config, and where: plain text with a caret, never markup."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape

EXCERPT = 100  # characters of a source line that are shown
SHOWN = 50  # problems that are printed; a thousand more would only hide the first


def _columns(text: str) -> int:
    """Count terminal columns: wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def clip(text: str, limit: int = 60) -> str:
    """Show at most `limit` characters of `text`, escaped."""
    return escape(text if len(text) <= limit else text[: limit - 3] + "...")


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, whose kind `code` names. `line` and `col` count from 1 in characters, `span` of them are faulty.

    For an override, `override` is true, `file` is the whole `KEY=VALUE` and `source_line` the same text.
    """

    file: str
    line: int | None
    col: int | None
    message: str
    hint: str | None = None
    source_line: str | None = None
    span: int = 1
    override: bool = False
    code: str = ""

    @property
    def place(self) -> str:
        """Name the place as `file:line:col`, or as the override that was typed."""
        if self.override:
            return clip(self.file, EXCERPT) or "''"
        parts = [escape(self.file), *(str(n) for n in (self.line, self.col) if n is not None)]
        return ":".join(parts)

    def __str__(self) -> str:
        return self.told(excerpt=True)

    def told(self, *, excerpt: bool) -> str:
        """Say the fault and the way out; the excerpt has a caret, which means something on lines of its own alone."""
        lines = [f"{self.place}: {self.message}"]
        if excerpt and self.source_line is not None and self.col is not None:
            lines += [f"    {text}".rstrip() for text in self._excerpt(self.source_line, self.col - 1)]
        if self.hint:
            lines += [f"  {text}" for text in self.hint.splitlines()]
        return "\n".join(lines)

    def _excerpt(self, line: str, at: int) -> tuple[str, str]:
        start = 0
        if len(line) > EXCERPT:
            start = max(0, min(at - EXCERPT // 2, len(line) - EXCERPT))
        end = min(len(line), start + EXCERPT)
        before, after = "..." * (start > 0), "..." * (end < len(line))
        under = escape(line[at : min(at + self.span, end)])
        caret = " " * _columns(before + escape(line[start:at])) + "^" * max(1, _columns(under))
        return before + escape(line[start:end]) + after, caret


class ConfigError(UsageError):
    """Every problem of a config at once, in the order of the file; overrides come last."""

    code = "config"

    def __init__(self, problems: Iterable[Problem]) -> None:
        given = list(problems)
        files = list(dict.fromkeys(problem.file for problem in given))
        order = sorted(given, key=lambda p: (p.override, files.index(p.file), p.line or 0, p.col or 0))
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(order))
        super().__init__(self.told(excerpt=True))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)

    def told(self, *, excerpt: bool) -> str:
        """Say every problem, or the first of very many."""
        shown = [problem.told(excerpt=excerpt) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            shown.append(f"... and {len(self.problems) - SHOWN:,} more problems")
        return "\n".join(shown)


@dataclass(frozen=True, slots=True)
class Source:
    """Text that problems point into: a file, or one override."""

    name: str
    lines: Sequence[str] = ()
    override: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a source. `line` and `col` count from 1; None is the source as a whole."""

    source: Source
    line: int | None = None
    col: int | None = None
    span: int = 1

    @property
    def text(self) -> str | None:
        """Return the marked line, or None where there is none."""
        lines = self.source.lines
        return lines[self.line - 1] if self.line is not None and 0 < self.line <= len(lines) else None

    def problem(self, code: str, message: str, hint: str | None = None) -> Problem:
        """Make the problem of this place."""
        source = self.source
        return Problem(source.name, self.line, self.col, message, hint, self.text, self.span, source.override, code)

    def error(self, code: str, message: str, hint: str | None = None) -> ConfigError:
        """Make the error of this one problem."""
        return ConfigError([self.problem(code, message, hint)])
