"""The top-level statements of a file that a name needs: those that bind it, and those that bind what they use."""

from __future__ import annotations

import ast
import copy
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

ATTENTION_WORDS = ("attention", "attn", "mha", "multihead", "multi_head")
ATTENTION_CODE = re.compile(r"softmax|attention|attn|quer|qkv|kqv|score|exp\b|logits|\bw?_?[qkv]\b", re.IGNORECASE)
ATTENTION_INPUTS = {"q", "k", "v", "query", "key", "value", "queries", "keys", "values", "wq", "wk", "wv"}

# Libraries of attention that is not torch or NumPy, by the name that is imported.
OTHER_LIBRARIES = {
    "jax": "JAX", "flax": "Flax", "haiku": "Haiku", "equinox": "Equinox", "keras": "Keras", "tf_keras": "Keras",
    "tensorflow": "TensorFlow", "mlx": "MLX", "paddle": "Paddle", "mxnet": "MXNet", "tinygrad": "tinygrad",
}  # fmt: skip

# A statement that calls one of these changes the object it is called on: `parser.add_argument(...)`.
MUTATORS = {"add_argument", "set_defaults", "update", "append", "extend", "insert", "setdefault", "add"}
SUBPARSERS = {"add_argument_group", "add_mutually_exclusive_group", "add_subparsers", "add_parser"}

Definition = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Statement:
    """A top-level statement: the names it binds or changes, the global names it uses, and whether it always runs."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    always_runs: bool

    @property
    def first_line(self) -> int:
        """First line, that of the first decorator if there is one."""
        decorators = getattr(self.node, "decorator_list", [])
        return min([self.node.lineno, *(decorator.lineno for decorator in decorators)])

    @property
    def has_side_effects(self) -> bool:
        """Whether the statement does more than define names (skipping it is then reported)."""
        node = self.node
        if isinstance(node, (*Definition, ast.Import, ast.ImportFrom, ast.Pass)) or _is_main_guard(node):
            return False
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return any(isinstance(inner, ast.Call) for inner in ast.walk(node))
        return True


def statements_of(tree: ast.Module) -> list[Statement]:
    """Analyse each top-level statement."""
    return [Statement(node, frozenset(_binds(node)), frozenset(_uses(node)), _always_runs(node)) for node in tree.body]


def needed_by(name: str, statements: Sequence[Statement]) -> list[Statement]:
    """Select the statements that must run to define `name` and what it uses, in file order.

    Imports are reduced to the names in use. Assignments to `name` after its last definition are skipped: they use it,
    as in `attention = attention(q, k, v)`. What no other statement binds may be assigned below the main guard.
    """
    bound = {known for one in statements for known in one.binds}
    guarded = [one for one in _below_main_guard(statements) if not one.binds & bound and name not in one.uses]
    statements = [*statements, *guarded]
    defined = [i for i, one in enumerate(statements) if isinstance(one.node, Definition) and name in one.binds]
    uses = {i for i, one in enumerate(statements) if defined and i > defined[-1] and _assigns(one.node, name)}
    needed, chosen, grown = {name}, set[int](), True
    while grown:
        grown = False
        for index, statement in enumerate(statements):
            if index not in chosen | uses and (statement.always_runs or statement.binds & needed):
                chosen.add(index)
                needed |= statement.uses
                grown = True
    return [_reduce_import(statements[index], needed) for index in sorted(chosen)]


def _below_main_guard(statements: Sequence[Statement]) -> list[Statement]:
    """Collect the plain assignments under `if __name__ == "__main__":`."""
    bodies = [one.node.body for one in statements if isinstance(one.node, ast.If) and _is_main_guard(one.node)]
    plain: list[ast.stmt] = [n for body in bodies for n in body if isinstance(n, ast.Assign | ast.AnnAssign)]
    return statements_of(ast.Module(plain, []))


def _assigns(node: ast.stmt, name: str) -> bool:
    """Whether a statement gives a name another value; setting an attribute of it does not."""
    inner = [n for t in node.targets for n in ast.walk(t)] if isinstance(node, ast.Assign) else []
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in inner)


def other_library(needed: Sequence[Statement]) -> str:
    """The library that needed definitions use in place of torch, by its usual name, or ""."""
    libraries: dict[str, str] = {}  # name that an import binds -> top-level module
    for node in (n for one in needed if not isinstance(one.node, Definition) for n in ast.walk(one.node)):
        if isinstance(node, ast.Import):
            libraries = {bound_name(alias): alias.name.split(".")[0] for alias in node.names} | libraries
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            libraries = {bound_name(alias): node.module.split(".")[0] for alias in node.names} | libraries
    used = {libraries[name] for one in needed if isinstance(one.node, Definition) for name in one.uses & {*libraries}}
    found = [usual for name, usual in OTHER_LIBRARIES.items() if name in used]
    return found[-1] if found and "torch" not in used else ""  # Flax rather than JAX


def definitions(statements: Sequence[Statement]) -> dict[str, Statement]:
    """Map the names of a file's classes and functions to their last definition."""
    return {one.node.name: one for one in statements if isinstance(one.node, Definition)}


def attention_names(statements: Sequence[Statement]) -> list[str]:
    """List what looks like attention by its name, else by its arguments; helpers of another one are left out."""
    known = definitions(statements)
    callables = [name for name, one in known.items() if _is_callable(one.node, known) and _speaks_of_it(name, known)]
    named = [name for name in callables if any(word in name.lower() for word in ATTENTION_WORDS)]
    found = named or callables
    return [name for name in found if not any(name in known[other].uses for other in found if other != name)]


def _speaks_of_it(name: str, known: dict[str, Statement]) -> bool:
    """Whether a definition, or one that it uses, has a word of attention: a helper of another file has none."""
    used, grown = {name}, {name}
    while grown:
        grown = {other for one in grown for other in known[one].uses & {*known}} - used
        used |= grown
    return any(ATTENTION_CODE.search(ast.unparse(known[one].node)) for one in used)


def _is_callable(node: ast.stmt, known: dict[str, Statement]) -> bool:
    if isinstance(node, ast.ClassDef):
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        if methods & {"forward", "__call__", "call"}:
            return True
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != node.name]
        return any(_is_callable(known[base].node, known) for base in bases if base in known)
    if isinstance(node, ast.FunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        names = {argument.arg.lower().replace("_", "") for argument in arguments}
        return len(names & ATTENTION_INPUTS) >= 2 or any(word in node.name.lower() for word in ATTENTION_WORDS)
    return False


def _always_runs(node: ast.stmt) -> bool:
    """Whether a statement runs for any name: `from x import *`, `__future__`, and changes to `sys.path`."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__" or any(alias.name == "*" for alias in node.names)
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("sys.path.")


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.test, ast.Compare):
        return False
    return {ast.unparse(side) for side in (node.test.left, *node.test.comparators)} == {"__name__", "'__main__'"}


def _binds(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, and those whose attributes or items it sets."""
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (bound_name(alias) for alias in node.names)
    elif not _is_main_guard(node):
        yield from _stored(node)
        for holder in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                for inner in getattr(holder, field, ()):
                    yield from _binds(inner)


def bound_name(alias: ast.alias) -> str:
    """Name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


def _stored(node: ast.stmt) -> set[str]:
    """Collect the names that a statement's own targets bind or change, those of inner statements excluded."""
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return set()
    targets: list[ast.AST] = list(getattr(node, "targets", []))
    targets += [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor) else []
    targets += [item.optional_vars for item in getattr(node, "items", []) if item.optional_vars]
    own = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    targets += [inner.target for child in own for inner in ast.walk(child) if isinstance(inner, ast.NamedExpr)]
    value = getattr(node, "value", None)
    method = value.func if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    if method is not None and method.attr in (MUTATORS if isinstance(node, ast.Expr) else SUBPARSERS):
        targets.append(method.value)
    return {name for target in targets for name in _root_names(target)}


def _root_names(target: ast.AST) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        yield from _root_names(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _root_names(item)


def _uses(node: ast.stmt) -> set[str]:
    """Collect the global names that a statement reads, also in annotations written as text (`config: "Config"`)."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return set()
    table = symtable.symtable(ast.unparse(node), "statement", "exec")
    annotations = [getattr(inner, "annotation", None) for inner in ast.walk(node)]
    quoted = {a.value for a in annotations if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return set(_globals(table)) | quoted | _stored(node)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _reduce_import(statement: Statement, needed: set[str]) -> Statement:
    """Keep only the needed names of an import: a missing package that is not needed does no harm."""
    node = statement.node
    if not isinstance(node, ast.Import | ast.ImportFrom) or statement.always_runs:
        return statement
    reduced = copy.copy(node)
    reduced.names = [alias for alias in node.names if bound_name(alias) in needed]
    return replace(statement, node=reduced)
