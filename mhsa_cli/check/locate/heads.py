"""Rules for heads: the nodes that split and merge them, and that compute q, k and v."""

from __future__ import annotations

import ast
from functools import partial

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, calling, first, last, nodes
from mhsa_cli.check.locate.scores import scores, values


def split(a: Anatomy) -> ast.AST | None:
    """The first reshape before the scores that mentions heads, else the first one, else the query."""
    reshapes = [n for n in a.before_scores() if syntax.called(n) in syntax.RESHAPES]
    return first(reshapes, lambda n: syntax.mentions(n, syntax.HEADS), lambda _: True) or query(a)


def merge(a: Anatomy) -> ast.AST | None:
    """The first reshape after the values."""
    return first(a.after_values(), calling(*syntax.RESHAPES))


def _assigned(role: str, a: Anatomy) -> ast.AST | None:
    """The assignment of q, k or v, preferably from something with another name."""

    def alone(node: ast.AST) -> bool:
        return [syntax.role(t) for t in syntax.targets(node)] == [role]

    def of_another(node: ast.AST) -> bool:
        return alone(node) and isinstance(node, ast.Assign) and role not in syntax.roles(node.value)

    def among(node: ast.AST) -> bool:
        return role in [syntax.role(t) for t in syntax.targets(node)]

    found = first(a.before_scores() + a.until_values(), of_another, alone, among)
    return found or (values(a) if role == "v" else scores(a))


query, key, value = (partial(_assigned, role) for role in "qkv")


def key_shape(a: Anatomy) -> ast.AST | None:
    """The last reshape of k before the scores."""
    reshapes = [n for n in a.before_scores() if syntax.called(n) in syntax.RESHAPES]
    return last(reshapes, lambda n: syntax.first_role(n) == "k") or key(a)


def names(a: Anatomy) -> ast.AST | None:
    """Where roles are swapped: k computed by the value layer, arguments in another order, k @ q."""

    def crossed(node: ast.AST) -> bool:
        sides = [syntax.first_role(side) for side in syntax.operands(node)]
        helper = a.helpers.get(syntax.called(node))
        if helper and isinstance(node, ast.Call):
            wanted = [syntax.role(p.arg) for p in helper.args.args if p.arg != "self"]
            given = [syntax.first_role(arg) for arg in node.args]
            return any(w and g and w != g for w, g in zip(wanted, given, strict=False))
        return sides[:2] in (["k", "q"], ["v", "q"], ["k", "v"], ["q", "v"]) and node is scores(a)

    def of_another(node: ast.AST) -> bool:
        own = {syntax.role(t) for t in syntax.targets(node)} - {""}
        given = syntax.roles(node.value) if isinstance(node, ast.Assign) else set()
        return len(own) == 1 and bool(given) and not own & given

    return first(nodes(a.run), of_another, crossed) or scores(a)


def shared(a: Anatomy) -> ast.AST | None:
    """A layer repeated in a list, else the first weight of the block, else the query."""

    def repeated(node: ast.AST) -> bool:
        lists = [side for side in syntax.sides(node, ast.Mult) if isinstance(side, ast.List)]
        return any(syntax.called(n) for side in lists for n in ast.walk(side))

    def weight(node: ast.AST) -> bool:
        calls = map(syntax.called, ast.walk(node)) if isinstance(node, ast.Assign) else ()
        return any(t.startswith("self.") for t in syntax.targets(node)) and any(map(syntax.MADE.search, calls))

    return first(nodes(s for s in a.construction if s.own), repeated, weight) or query(a)


def out(a: Anatomy) -> ast.AST | None:
    """The last return of the block."""
    return last(a.own, lambda n: isinstance(n, ast.Return))
