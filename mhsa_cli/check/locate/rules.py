"""What the rules of pointing share."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from mhsa_cli.check.locate.anatomy import Anatomy
from mhsa_cli.check.locate.flow import Step

Rule = Callable[[Anatomy], ast.AST | None]  # gives None where the code shows no honest place


def first(nodes: Iterable[ast.AST], *tests: Callable[[ast.AST], bool]) -> ast.AST | None:
    """Give the first node that passes a test; of several tests the first that any node passes."""
    kept = list(nodes)
    return next((node for test in tests for node in kept if test(node)), None)


def last(nodes: Iterable[ast.AST], *tests: Callable[[ast.AST], bool]) -> ast.AST | None:
    """Give the last node that passes; of several tests the first that any node passes."""
    return first(list(nodes)[::-1], *tests)


def nodes(steps: Iterable[Step]) -> list[ast.AST]:
    """Give the nodes of steps."""
    return [step.node for step in steps]


def at(a: Anatomy, index: int | None) -> ast.AST | None:
    """Give the node at an index of what a call runs."""
    return None if index is None else a.run[index].node
