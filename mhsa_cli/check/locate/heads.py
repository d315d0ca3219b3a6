"""Rules for heads: the nodes that split and merge them, and that compute q, k and v."""

from __future__ import annotations

import ast
from functools import partial

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, calling, first, last
from mhsa_cli.check.locate.scores import scores, values

is_reshape = calling(*syntax.RESHAPES)


def split(a: Anatomy) -> ast.AST | None:
    """The first reshape before the scores that mentions heads, else the first one, else the query."""
    heads = first(a.before_scores, lambda n: is_reshape(n) and syntax.mentions(n, syntax.HEADS), is_reshape)
    return heads or query(a)


def merge(a: Anatomy) -> ast.AST | None:
    """The first reshape after the values."""
    return first(a.after_values, is_reshape)


def _assigned(role: str, a: Anatomy) -> ast.AST | None:
    """The assignment of q, k or v, preferably from something with another name."""

    def only(node: ast.AST) -> bool:
        return syntax.target_roles(node) == [role]

    found = first(
        a.before_scores + a.until_values,
        lambda n: only(n) and isinstance(n, ast.Assign) and role not in syntax.roles(n.value),
        only,
        lambda n: role in syntax.target_roles(n),
    )
    return found or (values(a) if role == "v" else scores(a))


query, key, value = (partial(_assigned, role) for role in "qkv")


def key_shape(a: Anatomy) -> ast.AST | None:
    """The last reshape of k before the scores."""
    return last(a.before_scores, lambda n: is_reshape(n) and syntax.first_role(n) == "k") or key(a)


def names(a: Anatomy) -> ast.AST | None:
    """Where roles are swapped: k computed by the value layer, arguments in another order, k @ q."""

    def swapped(node: ast.AST) -> bool:
        helper = a.helpers.get(syntax.called(node))
        if helper and isinstance(node, ast.Call):
            expected = [syntax.role(p.arg) for p in helper.args.args if p.arg != "self"]
            passed = [syntax.first_role(arg) for arg in node.args]
            return any(e and p and e != p for e, p in zip(expected, passed, strict=False))
        factors = [syntax.first_role(side) for side in syntax.operands(node)]
        return factors[:2] in (["k", "q"], ["v", "q"], ["k", "v"], ["q", "v"]) and node is scores(a)

    def of_another(node: ast.AST) -> bool:
        own = set(syntax.target_roles(node)) - {""}
        used = syntax.roles(node.value) if isinstance(node, ast.Assign) else set()
        return len(own) == 1 and bool(used) and not own & used

    return first(a.run, of_another, swapped) or scores(a)


def shared(a: Anatomy) -> ast.AST | None:
    """A layer repeated in a list, else the first weight of the block, else the query."""

    def repeated(node: ast.AST) -> bool:
        lists = [side for side in syntax.sides(node, ast.Mult) if isinstance(side, ast.List)]
        return any(syntax.called(n) for side in lists for n in ast.walk(side))

    def weight(node: ast.AST) -> bool:
        calls = map(syntax.called, ast.walk(node)) if isinstance(node, ast.Assign) else ()
        return any(t.startswith("self.") for t in syntax.targets(node)) and any(map(syntax.MADE.search, calls))

    return first((n for n in a.construction if n in a.own), repeated, weight) or query(a)


def out(a: Anatomy) -> ast.AST | None:
    """The last return of the block."""
    return last(a.own_run, lambda n: isinstance(n, ast.Return))
