"""Infer the role of a parameter from what its code does with it, where its name says nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from mhsa_cli.check.locate import syntax

# Kinds of sizes and settings, the one that is shown most clearly first.
BY_EVIDENCE = ("n_heads", "seq_len", "dropout", "d_model", "d_head", "switch")
TABLES = {"ones", "zeros", "full", "arange", "tril", "triu", "Embedding", "empty_like"}
WEIGHTS = {"rand", "randn", "empty", "LayerNorm", "RMSNorm"}
SPLITS = {"view", "reshape", "unflatten", "rearrange", "tensor_split", "chunk"}


def roles_by_use(text: str, owners: Sequence[str], parameter: str, setting: str = "") -> list[str]:
    """List the kinds of sizes that a parameter of a file's classes or functions may be, the likeliest first.

    With `setting`, the kinds that this setting of a parameter that is a config may be.
    """
    nodes = [
        inner
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in owners
        for inner in ast.walk(node)
    ]
    aliases = _aliases(nodes, {parameter})
    if setting:
        read = {text for one in aliases for text in (f"{one}.{setting}", f"{one}[{setting!r}]")}
        aliases = _aliases(nodes, read)
    shown = {kind for node in nodes for kind in _shown(node, aliases)}
    return [kind for kind in BY_EVIDENCE if kind in shown]


def _aliases(nodes: Sequence[ast.AST], aliases: set[str]) -> set[str]:
    """Add the names that the code gives to an expression: self.h = n = parameter, and later m = self.h."""
    for _ in range(2):
        for node in nodes:
            aliases |= {name for name, value in syntax.assignments(node) if ast.unparse(value) in aliases}
    return aliases


def _shown(node: ast.AST, aliases: set[str]) -> Iterator[str]:
    """Yield what a node shows of the parameter: what it divides, sizes, counts or is compared with."""

    def stands(expression: ast.AST) -> bool:
        return isinstance(expression, ast.expr) and ast.unparse(expression) in aliases

    match node:
        case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), left=left, right=right):
            yield from ["n_heads"] * stands(right) + ["d_model"] * stands(left)
        case ast.BinOp(op=ast.Pow(), left=left) if stands(left):
            yield "d_head"
        case ast.Compare(left=left, comparators=[right]) if not isinstance(right, ast.Constant):
            if (stands(left) or stands(right)) and not isinstance(node.ops[0], ast.Eq | ast.NotEq):
                yield "seq_len"
        case ast.Slice(upper=ast.expr() as upper) if stands(upper):
            yield "seq_len"
        case ast.If(test=test) | ast.IfExp(test=test) if stands(test) or stands(getattr(test, "operand", test)):
            yield "switch"
        case ast.Call(args=arguments, keywords=keywords):
            values = [*arguments, *(one.value for one in keywords)]
            yield from _shown_by_call(syntax.called(node), values, aliases)


def _shown_by_call(called: str, values: Sequence[ast.expr], aliases: set[str]) -> Iterator[str]:
    parts = [e for value in values for e in (value.elts if isinstance(value, ast.Tuple | ast.List) else [value])]
    at = [index for index, part in enumerate(parts) if ast.unparse(part) in aliases]
    factors = [side for part in parts for inner in ast.walk(part) for side in syntax.sides(inner, ast.Mult)]
    if re.search(r"Linear|Conv1[dD]|Dense$", called):
        yield from ["d_model"] * bool(at)
        if any(ast.unparse(factor) in aliases for factor in factors):
            yield from ("n_heads", "d_head")
    elif not at:
        return
    elif "dropout" in called.lower():
        yield "dropout"
    elif called == "range":
        yield "n_heads"
    elif called in ("sqrt", "rsqrt"):
        yield "d_head"
    elif called in TABLES:
        yield "seq_len"
    elif called in WEIGHTS:
        yield "d_model"
    elif called in SPLITS:
        yield "d_head" if at == [len(parts) - 1] else "n_heads"
