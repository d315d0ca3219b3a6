"""Where in the user's file a fault most likely sits, and what a block's code speaks of."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Sequence
from functools import lru_cache

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, Rule
from mhsa_cli.check.locate.flow import flow_of


def line_of(text: str, name: str, rule: Rule, *given: Sequence[str]) -> int | None:
    """Give the line (from 1) of a block in a file at which a rule points, or None; `given` is for the rule.

    Only what the block runs is read: its call, its constructor, and the helpers of the file that these use.
    """
    node = rule(Anatomy(flow_of(text, name)), *given)
    return syntax.line(node) if node else None


@lru_cache(maxsize=4)  # one file is asked about many times in a row
def _code(text: str) -> tuple[str, ...]:
    """Give the lines without comments and without the text of strings, so that only code is matched."""
    lines = text.splitlines()
    kept = list(lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row = token.start[0] - 1
                kept[row] = kept[row][: token.start[1]]
            elif token.type == tokenize.STRING and token.start[0] != token.end[0]:
                for row in range(token.start[0] - 1, token.end[0]):
                    kept[row] = ""
    except (tokenize.TokenError, IndentationError):
        return tuple(lines)
    return tuple(kept)


def speaks(text: str, names: Collection[str], pattern: str, *, constructor: bool = True) -> bool:
    """Tell whether the code of a block and of what it uses matches a pattern; comments and docstrings left out."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    lines = _code(text)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names:
            skipped = set() if constructor else _lines_of_init(node)
            code = "\n".join(lines[n - 1] for n in range(node.lineno, (node.end_lineno or 0) + 1) if n not in skipped)
            code = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", lambda m: m.group() if len(m.group()) < 24 else "", code)
            if re.search(pattern, code, re.IGNORECASE):
                return True
    return False


def _lines_of_init(node: ast.stmt) -> set[int]:
    inits = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    return {line for n in inits for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
