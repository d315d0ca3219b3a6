"""Rules for modules: the nodes that create, keep or change what they should not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, first, last


def created(a: Anatomy) -> ast.AST | None:
    """A layer or a weight created in the call."""
    return first(a.own_first(a.run), lambda n: bool(syntax.MADE.search(syntax.called(n))))


def detached(a: Anatomy) -> ast.AST | None:
    """Where the gradient is cut: detach() or no_grad; else a tensor converted to a number or an array.

    A tensor made of plain numbers cuts nothing.
    """

    def cuts(node: ast.AST) -> bool:
        bare = node.attr if isinstance(node, ast.Attribute) else ""
        calls = ("detach", "detach_", "no_grad", "inference_mode", "numpy")
        return (syntax.called(node) in calls or bare == "data") and not a.is_mask(node)

    def reads(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        made = syntax.called(node) in ("tensor", "as_tensor", "from_numpy") and bool(node.args)
        return syntax.called(node) in ("item", "tolist") or (made and isinstance(node.args[0], ast.Name | ast.List))

    decorators = [d for node in a.run if (f := a.function[node]) for d in f.decorator_list]
    without = first(decorators, lambda n: bool(re.search("no_grad|inference_mode", ast.unparse(n))))
    return first(a.own_first(a.run), cuts) or without or first(a.run, reads)


def divides(a: Anatomy) -> ast.AST | None:
    """Where the width of a head is computed."""
    return first(a.own_first(a.everything), lambda n: bool(syntax.sides(n, ast.FloorDiv)))


def unregistered(a: Anatomy) -> ast.AST | None:
    """What the constructor keeps on self without registering it: a plain tensor, or a plain list of layers."""

    def bare(value: ast.expr, node: ast.AST) -> bool:
        if isinstance(value, ast.Name):
            return any(bare(v, node) for v in a.values_of(node, value.id) if not isinstance(v, ast.Name))
        calls = {syntax.called(n) for n in ast.walk(value)} - {""}
        listed = value.left if isinstance(value, ast.BinOp) and isinstance(value.left, ast.List) else value
        if isinstance(listed, ast.List | ast.ListComp | ast.Tuple | ast.Dict | ast.DictComp):
            return bool(calls)
        made = any(syntax.MADE.search(c) for c in calls - {"Linear"}) or bool(calls & {"zeros", "ones"})
        return made and not calls & {"Parameter", "Linear", "ModuleList", "Sequential", "ModuleDict"}

    def keeps(node: ast.AST) -> bool:
        on_self = any(t.startswith("self.") for t in syntax.targets(node))
        return on_self and isinstance(node, ast.Assign) and bare(node.value, node)

    return first(a.own_first(a.construction), keeps)


def state(a: Anatomy) -> ast.AST | None:
    """What the call writes on self, preferably what it also reads."""
    read = {ast.unparse(n) for n in a.run if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}

    def writes(node: ast.AST) -> list[str]:
        changed = [t.value for t in getattr(node, "targets", []) if isinstance(t, ast.Subscript)]
        match node:
            case ast.Call(func=ast.Attribute(value=kept, attr="append" | "extend" | "update" | "copy_" | "add_")):
                changed.append(kept)
        return [t for t in (*syntax.targets(node), *map(ast.unparse, changed)) if t.startswith("self.")]

    return first(a.run, lambda n: any(t in read for t in writes(n)), lambda n: bool(writes(n)))


def in_place(a: Anatomy) -> ast.AST | None:
    """What changes an argument of the block in place."""

    def changed(node: ast.AST) -> Iterator[str]:
        parts: list[ast.expr] = [t for t in getattr(node, "targets", ()) if isinstance(t, ast.Subscript)]
        parts += [node.target] if isinstance(node, ast.AugAssign) else []
        parts += [keyword.value for keyword in getattr(node, "keywords", ()) if keyword.arg == "out"]
        for part in parts:
            yield ast.unparse(part.value if isinstance(part, ast.Subscript) else part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            yield ast.unparse(node.func.value)

    def changes_argument(node: ast.AST) -> bool:
        function = a.function[node]
        return function is not None and not syntax.parameters(function).isdisjoint(changed(node))

    return first(a.own_first(a.run), changes_argument)


def overwritten(a: Anatomy) -> ast.AST | None:
    """What is written in place although the backward pass needs it: after the softmax, else the last of all."""

    def writes(node: ast.AST) -> bool:
        in_part = isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) for t in node.targets)
        called = syntax.called(node)
        return in_part or isinstance(node, ast.AugAssign) or (called.endswith("_") and not called.endswith("__"))

    def in_place(node: ast.AST) -> bool:
        named = node.keywords if isinstance(node, ast.Call) else []
        return any(one.arg == "inplace" and getattr(one.value, "value", None) is True for one in named)

    after = [] if a.softmax is None else a.run[a.softmax + 1 :]
    return first(a.own_first(after), writes) or last(a.run, writes) or first(a.everything, in_place)


def dropout(a: Anatomy) -> ast.AST | None:
    """A dropout that ignores `training`, else random numbers in the call, else a call of train().

    The call of a layer made by the constructor is correct, and never returned.
    """

    def uses_training(node: ast.AST, value: ast.AST, depth: int = 0) -> bool:
        if "training" in ast.unparse(value) or syntax.number(value) == 0:
            return True
        named = a.values_of(node, value.id) if isinstance(value, ast.Name) else []
        return depth < 2 and any(uses_training(node, v, depth + 1) for v in named)

    def ignores_training(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or ast.unparse(node.func).startswith("self."):
            return False
        if syntax.called(node) == syntax.KERNEL:
            rate = syntax.argument(node, ("dropout_p",), 3)
            return rate is not None and not uses_training(node, rate)
        if "drop" not in syntax.called(node).lower():
            return False
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        known = len(arguments) > 1 or syntax.is_library(node)
        return known and not any(uses_training(node, argument) for argument in arguments[1:])

    return first(
        a.run,
        ignores_training,
        lambda n: bool(re.search("rand|bernoulli|binomial", syntax.called(n))),
        lambda n: syntax.called(n) == "train" and not getattr(n, "args", ()),
    )


def dropout_before(a: Anatomy) -> ast.AST | None:
    """The dropout between the scores and the softmax, if there is one."""
    between = [] if a.scores is None or a.softmax is None else a.run[a.scores : a.softmax + 1]
    return last(between, lambda n: "drop" in syntax.called(n).lower())


def dropped_weights(a: Anatomy) -> ast.AST | None:
    """The dropout that overwrites the returned weights, else their return."""

    def overwrites(node: ast.AST) -> bool:
        if not isinstance(node, ast.Assign) or "drop" not in syntax.called(node.value).lower():
            return False
        given = node.value.args[:1] if isinstance(node.value, ast.Call) else []
        return [ast.unparse(arg) for arg in given] == syntax.targets(node)

    return first(a.until_values, overwrites) or returned_weights(a)


def returned_weights(a: Anatomy) -> ast.AST | None:
    """The last assignment of the returned weights after the values, else the return."""
    end = last(a.own_run, lambda n: isinstance(n, ast.Return))
    pairs = [n for n in ast.walk(end) if isinstance(n, ast.Tuple) and len(n.elts) > 1] if end else []
    weights = pairs[0].elts[-1] if pairs else None
    name = weights.id if isinstance(weights, ast.Name) else None
    return last(a.after_values, lambda n: name in syntax.targets(n)) or end


def unused(a: Anatomy, parameters: Sequence[str] = ()) -> ast.AST | None:
    """Where the constructor sets a parameter, named as in `named_parameters`: "gate.weight"."""
    names = [f"self.{part}" for path in parameters for part in path.split(".") if not part.isdigit()]
    tests = [lambda n, name=name: name in syntax.targets(n) for name in names]
    return first(a.own_first(a.construction), *tests)
