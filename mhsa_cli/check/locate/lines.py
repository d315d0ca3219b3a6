"""Where in the user's file a fault most likely sits, and what a block's code speaks of."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, Rule
from mhsa_cli.check.locate.flow import flow_of

LONG = 22  # characters of a text that is none of the code's words


def line_of(text: str, name: str, rule: Rule, *given: Sequence[str]) -> int | None:
    """Give the line (from 1) of a block in a file at which a rule points, or None; `given` is for the rule.

    Only what the block runs is read: its call, its constructor, and the helpers of the file that these use.
    """
    node = rule(Anatomy(flow_of(text, name)), *given)
    return syntax.line(node) if node else None


def speaks(text: str, names: Collection[str], pattern: str, *, constructor: bool = True) -> bool:
    """Tell whether the code of a block and of what it uses matches a pattern; comments and docstrings left out."""
    return any(re.search(pattern, code, re.IGNORECASE) for name, code in _code(text, constructor) if name in names)


@lru_cache(maxsize=4)  # one file is asked about many times in a row
def _code(text: str, constructor: bool) -> list[tuple[str, str]]:
    """Give the code of each class and function of a file, without comments and long texts, maybe without __init__."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= LONG:
            node.value = ""
        elif isinstance(node, ast.ClassDef) and not constructor:
            node.body = [ast.Pass() if getattr(one, "name", "") == "__init__" else one for one in node.body]
    return [(node.name, ast.unparse(node)) for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
