"""Properties of a node of the syntax tree: what it calls, which names it holds, which operation it is."""

from __future__ import annotations

import ast
import re
from types import UnionType

from mhsa_cli.check.roles import role_of

RESHAPES = {"view", "reshape", "rearrange", "unflatten", "flatten", "cat", "concat", "concatenate", "hstack"}
MADE = re.compile(r"Linear|Parameter|rand|normal|uniform|xavier|kaiming|empty", re.IGNORECASE)
HEADS = re.compile(r"^(n|num|nb|number)\w*heads?$|^heads?$|^nh$|^h$", re.IGNORECASE)
MASK = re.compile(r"mask|causal|tril|triu", re.IGNORECASE)
ANGLE = re.compile(r"cos|sin|freqs_?cis|cis", re.IGNORECASE)
ROTATION = re.compile(r"rope|rota|rotary", re.IGNORECASE)
OF_A_TENSOR = {"shape", "size", "dim", "ndim", "device", "dtype", "numel", "ndimension"}  # metadata, not values
LIBRARIES = {"F", "functional", "torch", "nn", "np", "numpy", "jnp", "jax", "scipy", "special", "tf", "math"}
PRODUCTS = ("matmul", "bmm", "baddbmm", "dot", "einsum", "inner", "tensordot")
SCALES = ("mul", "div", "mul_", "div_", "multiply", "divide", "true_divide")
KERNEL = "scaled_dot_product_attention"


def line(node: ast.AST) -> int | None:
    """Line of a node; in a chain of calls over several lines, that of its own call."""
    if isinstance(node, ast.Call):
        return node.func.end_lineno if isinstance(node.func, ast.Attribute) else node.lineno
    if isinstance(node, ast.BinOp):
        return node.right.lineno
    return getattr(node, "lineno", None)


def called(node: ast.AST) -> str:
    """Last part of the name that a node calls, or ""."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def names(node: ast.AST) -> set[str]:
    """All names and attributes in a node."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def mentions(node: ast.AST, pattern: re.Pattern[str]) -> bool:
    """Whether a name in a node matches."""
    return any(pattern.search(name) for name in names(node))


def role(name: str) -> str:
    """Role of a tensor or a projection by its name: "q", "k", "v" or ""."""
    found = role_of(name) or role_of(re.sub(r"^x", "", name))
    return found if found in ("q", "k", "v") else ""


def roles(node: ast.AST) -> set[str]:
    """Roles of all names in a node."""
    return {role(name) for name in names(node)} - {""}


def first_role(node: ast.AST) -> str:
    """Role of the first name in a node that has one, or ""."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
    found.sort(key=lambda n: (n.lineno, n.col_offset))
    return next((r for n in found if (r := role(n.id if isinstance(n, ast.Name) else n.attr))), "")


def is_root(node: ast.AST) -> bool:
    """Whether a node holds a root or a power."""
    return any(isinstance(n, ast.Pow) or called(n) in ("sqrt", "rsqrt", "pow") for n in ast.walk(node))


def sides(node: ast.AST, sign: type[ast.operator] | UnionType) -> list[ast.expr]:
    """Both operands of a binary operation of a type; [] for any other node."""
    return [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, sign) else []


def operands(node: ast.AST) -> list[ast.expr]:
    """Factors of a matrix product; [] for any other node."""
    if not isinstance(node, ast.Call):
        return sides(node, ast.MatMult)
    if called(node) in PRODUCTS:
        tensors = [a for a in node.args if not isinstance(a, ast.Constant)]
        return [node.func.value, *tensors] if isinstance(node.func, ast.Attribute) and len(tensors) == 1 else tensors
    return node.args[:3] if called(node) == KERNEL else []


def is_projection(node: ast.AST) -> bool:
    """Whether a product is with weights: an attribute of self, or a name like W_q."""
    bare = [o.value if isinstance(o, ast.Attribute) and o.attr in ("T", "mT") else o for o in operands(node)]
    return any(
        ast.unparse(o).startswith("self.") and isinstance(o, ast.Attribute)
        or bool(re.search(r"^[wW]_?(q|k|v|o|qkv|out)$|_weight$", ast.unparse(o), re.IGNORECASE))
        for o in bare
    )  # fmt: skip


def factors(node: ast.AST) -> list[ast.expr]:
    """Operands of a multiplication or division, written with an operator or as a call; [] for any other node."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
        return [node.target, node.value]
    if isinstance(node, ast.Call) and called(node) in SCALES:
        return [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args]
    return sides(node, ast.Mult | ast.Div)


def targets(node: ast.AST) -> list[str]:
    """Names that an assignment sets; attributes as "self.name"."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return []
    parts = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [e for p in parts for e in (p.elts if isinstance(p, ast.Tuple | ast.List) else [p])]
    return [ast.unparse(e) for e in flat if isinstance(e, ast.Name | ast.Attribute)]


def target_roles(node: ast.AST) -> list[str]:
    """Roles of the names that an assignment sets."""
    return [role(name) for name in targets(node)]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names of the parameters of a function."""
    return {p.arg for p in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}


def assignments(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Names and values of an assignment; a, b = x, y pair by pair."""
    if not isinstance(node, ast.Assign):
        return []
    found: list[tuple[str, ast.expr]] = []
    for target in node.targets:
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        values = [node.value] * len(names)
        if names != [target] and isinstance(node.value, ast.Tuple | ast.List) and len(node.value.elts) == len(names):
            values = node.value.elts
        found += [(ast.unparse(name), value) for name, value in zip(names, values, strict=True)]
    return [(t, v) for t, v in found if "[" not in t]


def is_library(node: ast.AST) -> bool:
    """Whether a call is of torch or NumPy by its name: F.softmax, np.sum."""
    func = node.func if isinstance(node, ast.Call) else node
    return isinstance(func, ast.Attribute) and ast.unparse(func.value).split(".")[0] in LIBRARIES


def is_plain(node: ast.AST) -> bool:
    """Whether a node is a number: a literal, infinity, or a limit of a dtype."""
    return number(node) is not None or bool(re.search(r"inf\b|finfo|iinfo", ast.unparse(node)))


def argument(node: ast.AST, names: tuple[str, ...], place: int) -> ast.expr | None:
    """Argument of a call by keyword, or by position after the tensor itself."""
    if not isinstance(node, ast.Call):
        return None
    for keyword in node.keywords:
        if keyword.arg in names:
            return keyword.value
    of_tensor = isinstance(node.func, ast.Attribute) and not is_library(node)
    after = node.args if of_tensor else node.args[1:]
    return after[place] if len(after) > place else None


def number(node: ast.AST | None) -> float | None:
    """Value of a numeric literal: -1, 2.0; None for any other node."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
    return None
