"""Scores of heads of the user's own, named on the command line as FILE.py:NAME; the names are checked, no file runs."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.config.own_file import OwnKind, file_problem, form_problem, split
from mhsa_cli.errors import UsageError

SCORE = OwnKind("own-score", "score", "my_score", (".py",), functions=True)


def check_names(names: Sequence[str]) -> None:
    """Check the names of --score, and that their files have them. Raises: UsageError."""
    for name in names:
        if problem := form_problem(name, SCORE) or file_problem(name, SCORE):
            raise UsageError(f"--score: {problem.message}", problem.hint, problem.code)
    short = [short_score(name) for name in names]
    if twice := next((name for name in short if short.count(name) > 1), None):
        message = f"--score: found two scores with the name {twice}"
        raise UsageError(message, "a score is shown under its name: rename one of them", SCORE.code)


def short_score(name: str) -> str:
    """Return the name of a score alone: `mine` of `scores.py:mine`."""
    return split(name)[1]
