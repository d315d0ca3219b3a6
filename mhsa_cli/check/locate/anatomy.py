"""The parts of attention in the code of a block: softmax, scores before it, values after it, and masks."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.flow import Flow, values_of

Test = Callable[[ast.AST], bool]


def first(nodes: Iterable[ast.AST], *tests: Test) -> ast.AST | None:
    """First node that passes the first of the tests that any node passes."""
    kept = list(nodes)
    return next((node for test in tests for node in kept if test(node)), None)


def last(nodes: Iterable[ast.AST], *tests: Test) -> ast.AST | None:
    """Last node that passes the first of the tests that any node passes."""
    return first(list(nodes)[::-1], *tests)


def calling(*names: str) -> Test:
    """Make a test: the node calls one of these names."""
    return lambda node: syntax.called(node) in names


class Anatomy:
    """The parts of attention in a `Flow`, each an index into `run`, or None."""

    def __init__(self, flow: Flow) -> None:
        self.helpers, self.function, self.own = flow.helpers, flow.function, flow.own
        self.run, self.construction, self.skipped = flow.call, flow.construction, flow.skipped
        self._file = flow.file
        self.everything = [*flow.construction, *flow.call]
        self.own_run = [n for n in flow.call if n in flow.own]
        self.top = [n for n in flow.call if self.function[n] is self.function[flow.call[-1]]]  # forward, no helper
        named = self.indices(lambda n: "softmax" in syntax.called(n).lower() or self._is_kernel(n))
        self.softmax = next(iter(named or self.indices(lambda n: syntax.called(n) == "exp")[::-1]), None)
        self.scores, self.values = self._products()
        # The nodes up to the scores, those from there to the product with the values, and those from there on.
        self.before_scores = self.run[: len(self.run) if self.scores is None else self.scores + 1]
        self.until_values = self.run[self.scores or 0 : len(self.run) if self.values is None else self.values + 1]
        self.after_values = [] if self.values is None else self.run[self.values :]
        self.masks = set[str]()
        for node in self.everything:
            self.masks.update(self._masks_of(node))

    def _is_kernel(self, node: ast.AST) -> bool:
        return syntax.called(node) == syntax.KERNEL and syntax.KERNEL not in self.helpers

    def _products(self) -> tuple[int | None, int | None]:
        """Find the scores, the last product before the softmax that is no projection, and the values, the next one."""
        if self.softmax is not None and self._is_kernel(self.run[self.softmax]):
            return self.softmax, self.softmax
        products = self.indices(lambda n: bool(syntax.operands(n)) and not self._is_kernel(n))
        plain = [i for i in products if not syntax.is_projection(self.run[i])]
        if self.softmax is None:
            return next(iter(plain), None), next(iter(plain[1:]), None)
        before = [i for i in plain if i < self.softmax] or [i for i in products if i < self.softmax]
        after = [i for i in plain if i > self.softmax] or [i for i in products if i > self.softmax]
        return next(reversed(before), None), next(iter(after), None)

    def file_of(self, node: ast.AST) -> str:
        """File of a node, "" if it is not known."""
        return self._file.get(node, "")

    def place(self, node: ast.AST) -> tuple[str, int, int]:
        """File, line and column of a node."""
        return self.file_of(node), getattr(node, "lineno", 0), getattr(node, "col_offset", 0)

    def at(self, index: int | None) -> ast.AST | None:
        return None if index is None else self.run[index]

    def indices(self, test: Test, first: int = 0, last: int | None = None) -> list[int]:
        """List the indices of `run` whose node passes, from `first` to `last` inclusive."""
        end = len(self.run) if last is None else last + 1
        return [i for i in range(first, end) if test(self.run[i])]

    def own_first(self, nodes: Iterable[ast.AST]) -> list[ast.AST]:
        """Order nodes: those in the block itself before those in its helpers."""
        return sorted(nodes, key=lambda node: node not in self.own)

    def values_of(self, node: ast.AST, name: str) -> list[ast.expr]:
        """List the values that the function around a node assigns to a name."""
        function = self.function[node]
        return values_of(function, name) if function else []

    def makes_mask(self, node: ast.AST) -> bool:
        """Whether a node assigns a mask to a name, or returns one."""
        returned = node.value if isinstance(node, ast.Return) else None
        return bool(self._masks_of(node)) or (returned is not None and self.is_mask(returned))

    def _masks_of(self, node: ast.AST) -> set[str]:
        """Names to which a node assigns a mask."""
        made = {target.rpartition(".")[2] for target, value in syntax.assignments(node) if self.is_mask(value)}
        match node:
            case ast.Call(func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=name), value, *_]):
                made |= {str(name)} if self.is_mask(value) else set()
        return made | set(self._filled_masks(node))

    def _filled_masks(self, node: ast.AST) -> list[str]:
        """Names of constant tensors that a node sets in part to a hiding value: m[i, j] = -inf."""
        if not isinstance(node, ast.Assign) or not re.search(r"inf|True|False|-", ast.unparse(node.value)):
            return []
        names = [t.value.id for t in node.targets if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)]
        made = [(name, syntax.called(v)) for name in names for v in self.values_of(node, name)]
        return [name for name, call in made if call in ("zeros", "ones", "full", "zeros_like", "ones_like")]

    def is_mask(self, node: ast.AST) -> bool:
        """Whether an expression is a mask: a triangle, a comparison of positions, or the name of a mask."""
        match node:
            case ast.Name(id=name):
                return name in self.masks or bool(syntax.MASK.search(name))
            case ast.Attribute(attr=name) | ast.Call(func=ast.Attribute(attr=name)) if name in syntax.OF_A_TENSOR:
                return False
            case ast.Attribute(value=inner, attr=name):
                return name in self.masks or bool(syntax.MASK.search(name)) or self.is_mask(inner)
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
                return self.is_mask(inner)
            case ast.Tuple(elts=parts):
                return any(map(self.is_mask, parts))
            case ast.IfExp():
                return self.is_mask(node.body) or self.is_mask(node.orelse)
            case ast.Compare():
                return "arange" in syntax.names(node) or self.is_mask(node.left)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()):
                return self.is_mask(node.left) or self.is_mask(node.right)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), left=left, right=right):
                sides = [self.is_mask(side) for side in (left, right)]  # scores plus a mask are no mask
                return any(sides) and all(
                    is_it or syntax.is_plain(s) for is_it, s in zip(sides, (left, right), strict=True)
                )
            case ast.Call(func=ast.Attribute(value=inner, attr=name)):
                if name in ("masked_fill", "masked_fill_", "where", "softmax", "matmul", "mm", "bmm"):
                    return False
                return bool(syntax.MASK.search(name)) or self.is_mask(inner)
            case ast.Call(func=ast.Name(id=name)):
                return bool(syntax.MASK.search(name)) and "softmax" not in name
        return False

    def is_masking(self, node: ast.AST) -> bool:
        """Whether a node applies a mask: fills, selects, adds, multiplies, assigns, or passes it to a kernel."""
        if isinstance(node, ast.Call):
            passed = {k.arg for k in node.keywords} & {"is_causal", "attn_mask"}
            return syntax.called(node) in ("masked_fill", "masked_fill_", "where") or bool(passed)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            return (self.is_mask(node.left) or self.is_mask(node.right)) and not self.is_mask(node)
        if isinstance(node, ast.AugAssign):
            return self.is_mask(node.value) or isinstance(node.target, ast.Subscript)
        if isinstance(node, ast.Assign):
            return any(isinstance(t, ast.Subscript) and self.is_mask(t.slice) for t in node.targets)
        return False


Rule = Callable[..., ast.AST | None]  # finds the node of a fault; None if the code does not show it


def place_of(a: Anatomy, rule: Rule, *args: Sequence[str]) -> tuple[str, int] | None:
    """File and line (from 1) of the node that a rule finds, or None; `args` go to the rule."""
    node = rule(a, *args)
    line = syntax.line(node) if node else None
    return None if node is None or line is None else (a.file_of(node), line)
