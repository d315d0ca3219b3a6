"""Rules for scores: the nodes of the scale, the softmax and the mask."""

from __future__ import annotations

import ast
from functools import partial

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, calling, first, last
from mhsa_cli.check.locate.flow import Function


def scores(a: Anatomy) -> ast.AST | None:
    """The product of queries and keys."""
    return a.at(a.scores)


def values(a: Anatomy) -> ast.AST | None:
    """The product of weights and values."""
    return a.at(a.values)


def scale(a: Anatomy) -> ast.AST | None:
    """The scale of the scores: its assignment if that is a root or a number, else its use."""
    used = scale_used(a)
    for name in syntax.names(used) if used else ():
        made = first(a.everything, partial(_sets_root, name), partial(_sets_scale, name))
        if made:
            return made
    return used


def scale_used(a: Anatomy) -> ast.AST | None:
    """Where the scores are scaled: after their product, else before it; else the scores."""

    until_softmax = a.run[a.scores or 0 : (a.softmax or len(a.run) - 1) + 1]
    return (
        first(a.until_values, _rooted)
        or first(a.before_scores, lambda n: _rooted(n) and not _angles(n))
        or first(until_softmax, lambda n: bool(syntax.factors(n)) and not any(map(a.is_mask, syntax.factors(n))))
        or scores(a)
    )


def scale_after(a: Anatomy) -> ast.AST | None:
    """The scale of the weights or of their product, after the softmax."""
    return first(a.run[(a.softmax or 0) + 1 :], _rooted) or scale_used(a)


def scale_again(a: Anatomy) -> ast.AST | None:
    """One of two scales: that of q or k beside that of their product, or beside the kernel's own."""

    def applies(node: ast.AST) -> bool:
        bare = [f for f in syntax.factors(node) if not _is_factor(f) and syntax.number(f) is None]
        return _rooted(node) and bool(bare) and not _angles(node)

    applied = a.indices(applies, 0, a.softmax)
    kernel = syntax.called(a.at(a.softmax) or ast.Pass()) == syntax.KERNEL
    if len(applied) <= (0 if kernel else 1):
        return scale(a)
    early = [i for i in applied if a.scores is not None and i < a.scores]
    return a.at((early or applied)[-1])


def _rooted(node: ast.AST) -> bool:
    return any(_is_factor(f) for f in syntax.factors(node))


def _is_factor(node: ast.AST) -> bool:
    named = isinstance(node, ast.Name | ast.Attribute) and "scal" in ast.unparse(node).lower()
    return named or (syntax.is_root(node) and not any(map(syntax.operands, ast.walk(node))))


def _angles(node: ast.AST) -> bool:
    return "arange" in syntax.names(node) or syntax.mentions(node, syntax.ANGLE)


def _sets_root(name: str, node: ast.AST) -> bool:
    """Whether an assignment sets a name to a root of numbers and names only."""
    if not isinstance(node, ast.Assign) or not any(t in (name, f"self.{name}") for t in syntax.targets(node)):
        return False
    made = any(syntax.operands(n) or syntax.MADE.search(syntax.called(n)) for n in ast.walk(node.value))
    return syntax.is_root(node.value) and not made and "arange" not in syntax.names(node.value)


def _sets_scale(name: str, node: ast.AST) -> bool:
    """Whether an assignment sets a name like "scale" to a formula of numbers and names only."""
    values = [v for t, v in syntax.assignments(node) if t in (name, f"self.{name}")]
    plain = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
    simple = any(all(isinstance(n, plain) for n in ast.walk(v)) for v in values)
    return "scal" in name.lower() and simple and any(isinstance(v, ast.BinOp | ast.Constant) for v in values)


def softmax(a: Anatomy) -> ast.AST | None:
    """What sets the axis of the softmax: the sum in the block's own helper, or the call that passes it."""
    if a.softmax is None:
        return None
    node, rest = a.run[a.softmax], a.run[a.softmax :]
    function = a.function[node]
    if syntax.called(node) == "exp":
        node = first(rest, lambda n: a.function[n] is function and syntax.called(n) == "sum") or node
    helper = a.helpers.get(syntax.called(node))
    if helper and not syntax.is_library(node):
        return _sums_wrongly(helper) or node
    axis = syntax.argument(node, ("axis", "dim"), 0)
    if isinstance(axis, ast.Name) and function and axis.id in syntax.parameters(function):
        return first(rest, calling(function.name)) or node
    return node


def _sums_wrongly(helper: Function) -> ast.AST | None:
    """The sum in a block's own softmax if it has a fixed axis other than the last."""
    sums = [n for n in ast.walk(helper) if syntax.called(n) in ("sum", "softmax", "logsumexp")]
    for node in sums:
        axis = syntax.argument(node, ("axis", "dim"), 0)
        if syntax.number(axis) == -1 or (isinstance(axis, ast.Name) and axis.id in syntax.parameters(helper)):
            return None
    return sums[-1] if sums else None


def softmax_kind(a: Anatomy) -> ast.AST | None:
    """The sigmoid used in place of the softmax."""

    def is_sigmoid(node: ast.AST) -> bool:
        negative = isinstance(node, ast.Call) and any(isinstance(arg, ast.UnaryOp) for arg in node.args)
        return "sigmoid" in syntax.called(node).lower() or (syntax.called(node) == "exp" and negative)

    return last(a.until_values, is_sigmoid) or last(a.run, is_sigmoid)


def softmax_again(a: Anatomy) -> ast.AST | None:
    """The last softmax."""
    return last(a.run, lambda n: "softmax" in syntax.called(n)) or softmax(a)


def softmax_place(a: Anatomy) -> ast.AST | None:
    """What the softmax should follow: the mask, else the scores."""
    return first(a.until_values, a.is_masking) or scores(a)


def mask_order(a: Anatomy) -> ast.AST | None:
    """The masking after the softmax, preferably in the function that takes the softmax."""
    if a.softmax is None:
        return mask(a)
    after = a.run[a.softmax + 1 : len(a.run) if a.values is None else a.values + 1]
    functions = (a.function[a.run[a.softmax]], a.function[a.run[-1]])  # of the softmax, and of the call
    here = [node for node in after if a.function[node] in functions]
    return first(here, a.is_masking, partial(_masks, a)) or first(after, a.is_masking) or mask(a)


def mask_lost(a: Anatomy) -> ast.AST | None:
    """A masking whose result is discarded, in a helper or not; else the masking."""

    def lost(node: ast.AST) -> bool:
        if not isinstance(node, ast.Expr) or not (a.is_masking(node.value) or _masks(a, node.value)):
            return False
        within = a.helpers.get(syntax.called(node.value), node)
        return not any(syntax.called(n).endswith("_") or _sets_part(n) for n in ast.walk(within))

    found = first(a.until_values, lost)
    return found.value if isinstance(found, ast.Expr) else mask(a)


def _masks(a: Anatomy, node: ast.AST) -> bool:
    """Whether a node calls a helper that masks."""
    helper = None if syntax.is_library(node) else a.helpers.get(syntax.called(node))
    return helper is not None and any(a.is_masking(n) for n in ast.walk(helper))


def _sets_part(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) for t in node.targets)


def fill(a: Anatomy) -> ast.AST | None:
    """The fill of masked scores: the assignment of its name, else its use."""

    def makes_mask(node: ast.AST) -> bool:
        return any(a.is_mask(value) and _fills(value) for _, value in syntax.assignments(node))

    found = first(a.until_values, lambda n: a.is_masking(n) and bool(_fills(n))) or last(a.everything, makes_mask)
    names = {ast.unparse(value) for value in _fills(found)} if found else set()

    def sets_fill(node: ast.AST) -> bool:
        return any(name in names and syntax.number(v) is not None for name, v in syntax.assignments(node))

    return last(a.everything, sets_fill) or found or mask(a)


def _fills(node: ast.AST) -> list[ast.expr]:
    """List the possible fills of a masking: numbers, and names."""
    found: list[ast.expr | None] = []
    for inner in ast.walk(node):
        match syntax.called(inner), inner:
            case "masked_fill" | "masked_fill_", _:
                found.append(syntax.argument(inner, ("value",), 1))
            case "where", ast.Call(args=[_, *filled]):
                found += filled
            case "full" | "full_like", ast.Call(args=[_, filled, *_]):
                found.append(filled)
            case _, ast.Assign() if _sets_part(inner):
                found.append(inner.value)
            case _:
                found += [f for f in syntax.factors(inner) if syntax.number(f) is not None]
    return [v for v in found if v and (syntax.number(v) is not None or isinstance(v, ast.Name | ast.Attribute))]


def mask(a: Anatomy) -> ast.AST | None:
    """Where a mask is applied, else where it is used or made; else the scores."""
    named = first(a.until_values, a.is_masking, lambda n: isinstance(n, ast.Name) and a.is_mask(n))
    return named or last(a.everything, lambda n: isinstance(n, ast.Assign) and a.is_mask(n.value)) or scores(a)


def mask_off(a: Anatomy) -> ast.AST | None:
    """A masking that hides nothing, such as is_causal=False; None where no node of a mask ran."""

    def of_a_mask(node: ast.AST) -> bool:
        if isinstance(node, ast.AugAssign):
            return a.is_mask(node.value)
        return a.is_masking(node) and (syntax.called(node) != "where" or any(map(a.is_mask, _arguments(node))))

    return first(a.until_values, of_a_mask)


def _arguments(node: ast.AST) -> list[ast.expr]:
    return node.args if isinstance(node, ast.Call) else []


def mask_shape(a: Anatomy) -> ast.AST | None:
    """What gives a mask its shape: a transpose where it is applied, a triangle, a comparison."""

    def transposed(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT") and a.is_mask(node)
        called = syntax.called(node) in ("transpose", "t", "swapaxes", "permute")
        return called and isinstance(node, ast.Call) and any(map(a.is_mask, (node, *node.args)))

    def compared(node: ast.AST) -> bool:
        return isinstance(node, ast.Compare) and a.is_mask(node)

    triangle = calling("tril", "triu", "tril_", "triu_", "tri", "tril_indices", "triu_indices")

    def set_in_part(node: ast.AST) -> bool:
        return _sets_part(node) and any(t.partition("[")[0] in a.masks for t in map(ast.unparse, node.targets))  # type: ignore[attr-defined]

    found = first(a.run, transposed, triangle) or first(a.construction, triangle, compared)
    return found or first(a.run, compared, set_in_part) or mask(a)


def mask_made(a: Anatomy) -> ast.AST | None:
    """Where a mask is stored on self, else where it is made."""

    def kept(node: ast.AST) -> bool:
        return any(t.startswith("self.") and a.is_mask(ast.parse(t, mode="eval").body) for t in syntax.targets(node))

    return first(a.construction, kept) or mask_shape(a)
