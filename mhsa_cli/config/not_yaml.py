"""Files that are not YAML at all, and what to say about YAML that does not parse."""

from __future__ import annotations

import re

import yaml

_ASSIGNMENT = re.compile(r"^[ ]*[A-Za-z_][\w.]*[ ]*=[ ]*\S", re.MULTILINE)
_YAML_LINE = re.compile(r"^[ ]*[\w-]+:([ ]|$)", re.MULTILINE)
_TABLE = re.compile(r"^[ ]*\[[\w.\"-]+\][ ]*(#.*)?$", re.MULTILINE)
_PYTHON = re.compile(r"^[ ]*(import|from|def|class)[ ]+\w", re.MULTILINE)

KINDS = {".py": "Python", ".toml": "TOML"}  # by the ending of a file's name
_HINTS = {
    "mapping values are not allowed": "is there a second `: ` on this line, or is the indentation off? Quote text that "
    "holds `: `",
    "could not find expected ':'": "is the colon missing, or the space after it? Wanted `key: value`",
    "expected <block end>": "is the indentation of this line the same as of its neighbours?",
    "found unexpected end of stream": "is a quote or bracket left open?",
    "expected ',' or": "is a bracket left open, or a comma missing?",
    "cannot start any token": "quote text that begins with this character",
}


def guess(text: str) -> str | None:
    """Guess that `text` is TOML or Python, from its `name = value` lines."""
    if _YAML_LINE.search(text):
        return None
    if _PYTHON.search(text):
        return "Python"
    if _ASSIGNMENT.search(text):
        return "TOML" if _TABLE.search(text) else "Python or TOML"
    return None


def refusal(kind: str) -> tuple[str, str]:
    """Say what was found instead of YAML, and how a line would look in YAML."""
    return (
        f"YAML expected, this is {kind}; it is not run or converted",
        "write `key: value` lines instead of `key = value`",
    )


def syntax_hint(error: yaml.MarkedYAMLError) -> str | None:
    """Find the usual cause of a parser's complaint."""
    problem = str(error.problem)
    return next((hint for start, hint in _HINTS.items() if start in problem), None)
