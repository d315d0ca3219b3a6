"""Where in the user's file a fault most likely sits: the line, read from the syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import lru_cache

from mhsa_cli.check.locate import PLACES, axes, modules, syntax
from mhsa_cli.check.locate.anatomy import Anatomy
from mhsa_cli.check.locate.flow import flow_of, parts_of


def line_of(text: str, name: str, where: str, unused: tuple[str, ...] = ()) -> int | None:
    """Give the line (from 1) of a target in a file at which a part of attention sits, or None.

    Only what the target runs is read: its call, its constructor, and the helpers of the file that these use. `where` is
    a key of `PLACES`; `unused` are parameters to look for instead.
    """
    anatomy = Anatomy(flow_of(text, name))
    node = modules.unused(anatomy, unused) if unused else None
    node = node or PLACES[where](anatomy)
    return syntax.line(node) if node else None


def batch_axis_of(text: str, name: str) -> str:
    """Give the name by which a target's source calls its first axis, if that is the rows of the batch, or ""."""
    target, call = parts_of(text, name)
    return axes.batch_axis(text, target, call)


@lru_cache(maxsize=4)  # one file is asked about many times in a row
def _code(text: str) -> tuple[str, ...]:
    """Give the lines without comments and without the text of strings, so that only code is matched."""
    import io
    import tokenize

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
    """Tell whether the code of a target and of what it uses matches a pattern; comments and docstrings left out."""
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
