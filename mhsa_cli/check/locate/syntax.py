"""Small questions to a node of the syntax tree: what it calls, which names it holds, which part of attention it is."""

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
OF_A_TENSOR = {"shape", "size", "dim", "ndim", "device", "dtype", "numel", "ndimension"}  # not its numbers
LIBRARIES = {"F", "functional", "torch", "nn", "np", "numpy", "jnp", "jax", "scipy", "special", "tf", "math"}
PRODUCTS = ("matmul", "bmm", "baddbmm", "dot", "einsum", "inner", "tensordot")
SCALES = ("mul", "div", "mul_", "div_", "multiply", "divide", "true_divide")
KERNEL = "scaled_dot_product_attention"


def line(node: ast.AST) -> int | None:
    """Give the line of what makes a node: of a chain of calls over many lines its own one."""
    if isinstance(node, ast.Call):
        return node.func.end_lineno if isinstance(node.func, ast.Attribute) else node.lineno
    if isinstance(node, ast.BinOp):
        return node.right.lineno
    return getattr(node, "lineno", None)


def called(node: ast.AST) -> str:
    """Give the last part of the name that a node calls, or ""."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def names(node: ast.AST) -> set[str]:
    """Give every name and attribute in a node."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def speak(node: ast.AST, pattern: re.Pattern[str]) -> bool:
    """Tell whether a name in a node matches."""
    return any(pattern.search(name) for name in names(node))


def role(name: str) -> str:
    """Read "q", "k" or "v" from a name of a tensor or of its projection, or ""."""
    found = role_of(name) or role_of(re.sub(r"^x", "", name))
    return found if found in ("q", "k", "v") else ""


def roles(node: ast.AST) -> set[str]:
    """Give the roles of all names in a node."""
    return {role(name) for name in names(node)} - {""}


def first_role(node: ast.AST) -> str:
    """Give the role of the name in a node that comes first, or ""."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]
    found.sort(key=lambda n: (n.lineno, n.col_offset))
    return next((r for n in found if (r := role(n.id if isinstance(n, ast.Name) else n.attr))), "")


def is_root(node: ast.AST) -> bool:
    """Tell whether a node holds a root or a power."""
    return any(isinstance(n, ast.Pow) or called(n) in ("sqrt", "rsqrt", "pow") for n in ast.walk(node))


def sides(node: ast.AST, sign: type[ast.operator] | UnionType) -> list[ast.expr]:
    """List both sides of a formula with one of some signs between them, or nothing where a node is none."""
    return [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, sign) else []


def operands(node: ast.AST) -> list[ast.expr]:
    """List the factors of a product of matrices, or nothing where a node is none."""
    if not isinstance(node, ast.Call):
        return sides(node, ast.MatMult)
    if called(node) in PRODUCTS:
        tensors = [a for a in node.args if not isinstance(a, ast.Constant)]
        return [node.func.value, *tensors] if isinstance(node.func, ast.Attribute) and len(tensors) == 1 else tensors
    return node.args[:3] if called(node) == KERNEL else []


def is_projection(node: ast.AST) -> bool:
    """Tell whether a product is one with weights: an attribute of self, or what is called W_q."""
    bare = [o.value if isinstance(o, ast.Attribute) and o.attr in ("T", "mT") else o for o in operands(node)]
    return any(
        ast.unparse(o).startswith("self.") and isinstance(o, ast.Attribute)
        or bool(re.search(r"^[wW]_?(q|k|v|o|qkv|out)$|_weight$", ast.unparse(o), re.IGNORECASE))
        for o in bare
    )  # fmt: skip


def factors(node: ast.AST) -> list[ast.expr]:
    """List both sides of a multiplication or a division, written by a sign or as a call; else nothing."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
        return [node.target, node.value]
    if isinstance(node, ast.Call) and called(node) in SCALES:
        return [*([node.func.value] if isinstance(node.func, ast.Attribute) else []), *node.args]
    return sides(node, ast.Mult | ast.Div)


def targets(node: ast.AST) -> list[str]:
    """List the names that an assignment sets; attributes as "self.name"."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return []
    parts = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [e for p in parts for e in (p.elts if isinstance(p, ast.Tuple | ast.List) else [p])]
    return [ast.unparse(e) for e in flat if isinstance(e, ast.Name | ast.Attribute)]


def assignments(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """List which name an assignment gives which value: a, b = x, y pair by pair."""
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
    """Tell whether a call is one of torch's or NumPy's functions by its name: F.softmax, np.sum."""
    func = node.func if isinstance(node, ast.Call) else node
    return isinstance(func, ast.Attribute) and ast.unparse(func.value).split(".")[0] in LIBRARIES


def is_plain(node: ast.AST) -> bool:
    """Tell whether a node is a number: written out, infinity, or a dtype's smallest."""
    return number(node) is not None or bool(re.search(r"inf\b|finfo|iinfo", ast.unparse(node)))


def argument(node: ast.AST, names: tuple[str, ...], place: int) -> ast.expr | None:
    """Give an argument of a call by its keyword, or by its place among those after the tensor itself."""
    if not isinstance(node, ast.Call):
        return None
    for keyword in node.keywords:
        if keyword.arg in names:
            return keyword.value
    of_tensor = isinstance(node.func, ast.Attribute) and not is_library(node)
    after = node.args if of_tensor else node.args[1:]
    return after[place] if len(after) > place else None


def number(node: ast.AST | None) -> float | None:
    """Read a number that is written out: -1, 2.0; None for anything else."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
    return None
