"""Problems of a config with their places, as plain text with a caret."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape

EXCERPT = 100  # characters of a source line that are shown
SHOWN = 50  # problems that are printed


def _columns(text: str) -> int:
    """Count terminal columns: wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def clip(text: str, limit: int = 60) -> str:
    """Return at most `limit` characters of `text`, escaped."""
    return escape(text if len(text) <= limit else text[: limit - 3] + "...")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; `code` is its kind. `line` and `col` count from 1 in characters, `span` is its length.

    For an override, `file` and `source_line` are the whole `KEY=VALUE`.
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
        """The place as `file:line:col`, or the override as typed."""
        if self.override:
            return clip(self.file, EXCERPT) or "''"
        parts = [escape(self.file), *(str(n) for n in (self.line, self.col) if n is not None)]
        return ":".join(parts)

    def __str__(self) -> str:
        return self.describe(excerpt=True)

    def describe(self, *, excerpt: bool) -> str:
        """Return message and hint; the excerpt with its caret needs lines of its own."""
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
    """All problems of a config, in the order of the file; overrides come last."""

    code = "config"

    def __init__(self, problems: Iterable[Problem]) -> None:
        given = list(problems)
        files = list(dict.fromkeys(problem.file for problem in given))
        order = sorted(given, key=lambda p: (p.override, files.index(p.file), p.line or 0, p.col or 0))
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(order))
        super().__init__(self.describe(excerpt=True))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)

    def describe(self, *, excerpt: bool) -> str:
        """Return the text of all problems, or of the first SHOWN."""
        shown = [problem.describe(excerpt=excerpt) for problem in self.problems[:SHOWN]]
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
    """A place in a source. `line` and `col` count from 1; None means the whole source."""

    source: Source
    line: int | None = None
    col: int | None = None
    span: int = 1

    @property
    def text(self) -> str | None:
        """The marked line, or None."""
        lines = self.source.lines
        return lines[self.line - 1] if self.line is not None and 0 < self.line <= len(lines) else None

    def problem(self, code: str, message: str, hint: str | None = None) -> Problem:
        """Return a problem at this place."""
        source = self.source
        return Problem(source.name, self.line, self.col, message, hint, self.text, self.span, source.override, code)

    def error(self, code: str, message: str, hint: str | None = None) -> ConfigError:
        """Return the error of one problem at this place."""
        return ConfigError([self.problem(code, message, hint)])
