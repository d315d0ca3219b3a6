"""Which node is the scale, the softmax, the mask."""

from __future__ import annotations

import ast
from functools import partial

from mhsa_cli.core.check.pointing import syntax
from mhsa_cli.core.check.pointing.anatomy import Anatomy
from mhsa_cli.core.check.pointing.rules import at, first, last, nodes


def scores(a: Anatomy) -> ast.AST | None:
    """Point at the product of queries and keys."""
    return at(a, a.scores)


def values(a: Anatomy) -> ast.AST | None:
    """Point at the product of weights and values."""
    return at(a, a.values)


def scale(a: Anatomy) -> ast.AST | None:
    """Point at the factor of the scores: a root from the scores on, or before them; another factor; the scores."""

    def rooted(node: ast.AST) -> bool:
        return any(syntax.is_root(f) and not syntax.operands(f) or _is_scale(f) for f in syntax.factors(node))

    def plain(node: ast.AST) -> bool:
        return bool(syntax.factors(node)) and not any(a.is_mask(f) for f in syntax.factors(node))

    def angles(node: ast.AST) -> bool:
        return "arange" in syntax.names(node) or syntax.speak(node, syntax.ANGLE)

    until_softmax = nodes(a.run[a.scores or 0 : (a.softmax or len(a.run) - 1) + 1])
    found = (
        first(a.until_values(), rooted)
        or first(a.before_scores(), lambda n: rooted(n) and not angles(n))
        or first(until_softmax, plain)
    )
    for name in syntax.names(found) if found else ():
        made = first(nodes(a.everything()), partial(_sets_root, name))
        if made:
            return made
    return found or scores(a)


def _is_scale(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and "scal" in ast.unparse(node).lower()


def _sets_root(name: str, node: ast.AST) -> bool:
    """Tell whether an assignment gives a name a root of a width: of numbers and names only."""
    if not isinstance(node, ast.Assign) or not any(t in (name, f"self.{name}") for t in syntax.targets(node)):
        return False
    made = any(syntax.operands(n) or syntax.MADE.search(syntax.called(n)) for n in ast.walk(node.value))
    return syntax.is_root(node.value) and not made and "arange" not in syntax.names(node.value)


def softmax(a: Anatomy) -> ast.AST | None:
    """Point at the softmax."""
    return at(a, a.softmax)


def softmax_again(a: Anatomy) -> ast.AST | None:
    """Point at the last softmax."""
    return last(nodes(a.run), lambda n: "softmax" in syntax.called(n)) or softmax(a)


def softmax_place(a: Anatomy) -> ast.AST | None:
    """Point at what the softmax should follow: the mask, or the scores."""
    return first(a.until_values(), a.is_masking) or scores(a)


def mask(a: Anatomy) -> ast.AST | None:
    """Point at where a mask is applied, at least tested or made; else at the scores that it should reach."""

    def named(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and a.is_mask(node)

    def made(node: ast.AST) -> bool:
        return isinstance(node, ast.Assign) and a.is_mask(node.value)

    return first(a.until_values(), a.is_masking, named) or last(nodes(a.everything()), made) or scores(a)


def mask_shape(a: Anatomy) -> ast.AST | None:
    """Point at what gives a mask its shape: a mask that is turned where it is applied, a triangle, a comparison."""

    def turned(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT") and a.is_mask(node)
        turns = syntax.called(node) in ("transpose", "t", "swapaxes", "permute")
        return turns and isinstance(node, ast.Call) and any(map(a.is_mask, (node, *node.args)))

    def triangle(node: ast.AST) -> bool:
        return syntax.called(node) in ("tril", "triu", "tril_", "triu_", "tri", "tril_indices", "triu_indices")

    def compared(node: ast.AST) -> bool:
        return isinstance(node, ast.Compare) and a.is_mask(node)

    made = first(nodes(a.run), turned, triangle) or first(nodes(a.making), triangle, compared)
    return made or first(nodes(a.run), compared) or mask(a)


def mask_made(a: Anatomy) -> ast.AST | None:
    """Point at where a mask is put on self, or made."""

    def kept(node: ast.AST) -> bool:
        return any(t.startswith("self.") and a.is_mask(ast.parse(t, mode="eval").body) for t in syntax.targets(node))

    return first(nodes(a.making), kept) or mask_shape(a)
