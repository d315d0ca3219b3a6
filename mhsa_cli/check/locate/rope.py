"""Rules for rotary positions: the nodes that rotate, and that compute the angles."""

from __future__ import annotations

import ast
import re
from functools import partial

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, calling, first, last
from mhsa_cli.check.locate.heads import key

_BASE = re.compile(r"theta|base|freq", re.IGNORECASE)


def rotation(a: Anatomy) -> ast.AST | None:
    """The first rotation: the call of a rotating function, or a product with a cosine or a sine."""
    return first(a.top, partial(_calls, _rotators(a))) or first(a.run, _turns)


def _rotation_of(role: str, a: Anatomy) -> ast.AST | None:
    rotators = _rotators(a)

    def of_role(node: ast.AST) -> bool:
        rotated = node.args[:1] if isinstance(node, ast.Call) else [node]
        return any(syntax.first_role(one) == role for one in rotated) and (_calls(rotators, node) or _turns(node))

    return first(a.top, of_role) or rotation(a)


rotation_of_values, rotation_of_keys = (partial(_rotation_of, role) for role in "vk")


def angles(a: Anatomy) -> ast.AST | None:
    """Where angles, or their cosines, are laid out over all features; else the rotation."""
    rotated = {ast.unparse(o) for n in a.everything for o in _of_cosine(n)}

    def lays_out(node: ast.AST) -> bool:
        calls = {syntax.called(n) for n in ast.walk(node)} if isinstance(node, ast.Assign) else {syntax.called(node)}
        return bool(calls & {"repeat_interleave", "repeat", "tile", "cat", "concat", "concatenate", "stack"})

    found = first(
        filter(lays_out, a.everything),
        lambda n: any(t in rotated or syntax.ANGLE.search(t) for t in syntax.targets(n)),
        lambda n: isinstance(n, ast.Call) and ast.unparse(n) in rotated,
    )
    return found or rotation(a)


def _of_cosine(node: ast.AST) -> list[ast.expr]:
    if not isinstance(node, ast.Call) or syntax.called(node) != "cos":
        return []
    return node.args[:1] or ([node.func.value] if isinstance(node.func, ast.Attribute) else [])


def positions(a: Anatomy) -> ast.AST | None:
    """Why positions have no effect: positions counted over heads, unused angles, else the rotation, else k."""

    def over_heads(node: ast.AST) -> bool:
        counted = node.args if isinstance(node, ast.Call) and syntax.called(node) == "arange" else []
        return any(syntax.mentions(arg, syntax.HEADS) for arg in counted)

    def lost(node: ast.AST) -> bool:
        return isinstance(node, ast.Expr) and _calls(_rotators(a), node.value)

    return (
        first(a.run, over_heads, lost)
        or _helper_without_angles(a)
        or _unused_angles(a)
        or rotation(a)
        or last(a.before_scores, lambda n: [syntax.role(t) for t in syntax.targets(n)] in (["q"], ["k"]))
        or key(a)
    )


def rates(a: Anatomy) -> ast.AST | None:
    """The power that gives the rates, else the exponential, else the range over pairs."""

    def counts(node: ast.AST) -> bool:
        return "arange" in syntax.names(node) or syntax.mentions(node, _BASE)

    return first(
        a.everything,
        lambda n: counts(n) and (bool(syntax.sides(n, ast.Pow)) or syntax.called(n) == "pow"),
        lambda n: counts(n) and syntax.called(n) == "exp",
        lambda n: isinstance(n, ast.Call) and syntax.called(n) == "arange" and len(n.args) > 2,
    )


def sense(a: Anatomy) -> ast.AST | None:
    """What gives the rotation its direction: a conjugate, a sum with the sine, the helper that negates."""

    def combines(node: ast.AST) -> bool:
        added = syntax.sides(node, ast.Add | ast.Sub)
        return bool(added) and all(map(_turns, added))

    found = first(a.run, calling("conj", "conj_physical"), combines)
    if isinstance(found, ast.BinOp) and isinstance(found.op, ast.Add):
        for call in ast.walk(found):  # x * cos + rotate_half(x) * sin is right: the sign is in the helper
            helper = a.helpers.get(syntax.called(call))
            negated = [n for n in ast.walk(helper) if _negates(n)] if helper else []
            if negated:
                return negated[0]
    return found or first(a.run, _turns) or first(a.everything, calling("polar"))


def _turns(node: ast.AST) -> bool:
    """Whether a node is a product with a cosine, a sine, or complex angles."""
    return any(syntax.mentions(side, syntax.ANGLE) for side in syntax.sides(node, ast.Mult))


def _rotators(a: Anatomy) -> set[str]:
    """The rotating functions that forward calls, by their names or because they multiply by a cosine or a sine."""
    named = [n for n in a.top if syntax.ROTATION.search(syntax.called(n))]
    found = {ast.unparse(n.func) for n in named if isinstance(n, ast.Call) and not syntax.MADE.search(syntax.called(n))}
    inside = a.indices(_turns)
    if inside and a.run[inside[0]] not in a.top:  # a call comes right after the nodes that it runs
        after = [n for n in a.run[inside[0] :] if n in a.top and isinstance(n, ast.Call)]
        found.update(ast.unparse(n.func) for n in after[:1] if isinstance(n, ast.Call))
    return found


def _calls(functions: set[str], node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in functions


def _negates(node: ast.AST) -> bool:
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return negated and not isinstance(getattr(node, "operand", None), ast.Constant)


def _helper_without_angles(a: Anatomy) -> ast.AST | None:
    """The return of a rotating helper that does not use the angles passed to it."""
    own = [a.function[node] for node in a.own_run]
    for name, helper in a.helpers.items():
        given = {p.arg for p in helper.args.args} - {"self"}
        unread = given - {n.id for n in ast.walk(helper) if isinstance(n, ast.Name)}
        angles = any(syntax.ANGLE.search(p) or "pos" in p for p in unread)
        if angles and helper not in own and (syntax.ROTATION.search(name) or name in ("forward", "__call__")):
            return last(helper.body, lambda n: isinstance(n, ast.Return))
    return None


def _unused_angles(a: Anatomy) -> ast.AST | None:
    """Cosines or angles that the call computes and does not use."""
    read = {n.id for n in a.run if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    made = [(n, {t for t in syntax.targets(n) if "." not in t and syntax.ANGLE.search(t)}) for n in a.run]
    return next((node for node, angles in made if angles and not angles & read), None)
