"""Which top-level statements of a file a name needs: those that bind it, and those that bind what they use."""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

ATTENTION_WORDS = ("attention", "attn", "mha", "multihead", "multi_head")
INPUTS = {"q", "k", "v", "query", "key", "value", "queries", "keys", "values", "wq", "wk", "wv"}

# A statement that calls one of these changes what it is called on: `parser.add_argument(...)`, `layers.append(...)`.
CHANGES = {"add_argument", "set_defaults", "update", "append", "extend", "insert", "setdefault", "add"}
PARTS = {"add_argument_group", "add_mutually_exclusive_group", "add_subparsers", "add_parser"}

Definition = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Part:
    """A top-level statement: the names it binds or changes, and the global names that it uses."""

    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    always: bool

    @property
    def first(self) -> int:
        """Give its first line, that of its first decorator if it has one."""
        decorators = getattr(self.node, "decorator_list", [])
        return min([self.node.lineno, *(decorator.lineno for decorator in decorators)])

    @property
    def runs(self) -> bool:
        """Tell whether it does more than define: then leaving it out is worth a word."""
        node = self.node
        if isinstance(node, (*Definition, ast.Import, ast.ImportFrom, ast.Pass)) or _is_main_guard(node):
            return False
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return any(isinstance(inner, ast.Call) for inner in ast.walk(node))
        return True


def parts_of(tree: ast.Module) -> list[Part]:
    """Look at each top-level statement."""
    return [Part(node, frozenset(_binds(node)), frozenset(_uses(node)), _always(node)) for node in tree.body]


def needed_by(name: str, parts: Sequence[Part]) -> list[Part]:
    """Choose, in the order of the file, what must run for `name` to be there and to work.

    An import is cut down to the names that are used. After the last definition of `name` itself, assignments to it are
    left out: they are trials of it, such as `attention = attention(q, k, v)`.
    """
    defined = [index for index, part in enumerate(parts) if isinstance(part.node, Definition) and name in part.binds]
    trials = {
        index for index, part in enumerate(parts) if defined and index > defined[-1] and _assigns(part.node, name)
    }
    wanted, chosen, grown = {name}, set[int](), True
    while grown:
        grown = False
        for index, part in enumerate(parts):
            if index not in chosen | trials and (part.always or part.binds & wanted):
                chosen.add(index)
                wanted |= part.uses
                grown = True
    return [_cut(parts[index], wanted) for index in sorted(chosen)]


def _assigns(node: ast.stmt, name: str) -> bool:
    """Tell whether it gives a name another value; setting an attribute of it does not."""
    inner = [n for t in node.targets for n in ast.walk(t)] if isinstance(node, ast.Assign) else []
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in inner)


def definitions(parts: Iterable[Part]) -> dict[str, Part]:
    """List the classes and functions of a file by name; of several with one name the last."""
    return {part.node.name: part for part in parts if isinstance(part.node, Definition)}


def likely(parts: Sequence[Part]) -> list[str]:
    """List what looks like attention: by name, else by its arguments; what another of them uses is none."""
    known = definitions(parts)
    able = [name for name, part in known.items() if _can_be_called(part.node, known)]
    named = [name for name in able if any(word in name.lower() for word in ATTENTION_WORDS)]
    found = named or able
    return [name for name in found if not any(name in known[other].uses for other in found if other != name)]


def _can_be_called(node: ast.stmt, known: dict[str, Part]) -> bool:
    if isinstance(node, ast.ClassDef):
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        if methods & {"forward", "__call__", "call"}:
            return True
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != node.name]
        return any(_can_be_called(known[base].node, known) for base in bases if base in known)
    if isinstance(node, ast.FunctionDef):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given = {argument.arg.lower().replace("_", "") for argument in arguments}
        return len(given & INPUTS) >= 2 or any(word in node.name.lower() for word in ATTENTION_WORDS)
    return False


def _always(node: ast.stmt) -> bool:
    """Tell whether it runs for any block: `from x import *`, and what changes where modules are looked for."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__" or any(alias.name == "*" for alias in node.names)
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("sys.path.")


def _is_main_guard(node: ast.stmt) -> bool:
    if not isinstance(node, ast.If) or node.orelse or not isinstance(node.test, ast.Compare):
        return False
    return {ast.unparse(side) for side in (node.test.left, *node.test.comparators)} == {"__name__", "'__main__'"}


def _binds(node: ast.stmt) -> Iterator[str]:
    """Give the names that a statement binds, and those whose attributes or items it sets."""
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (bound(alias) for alias in node.names)
    elif not _is_main_guard(node):
        yield from _stored(node)
        for holder in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                for inner in getattr(holder, field, ()):
                    yield from _binds(inner)


def bound(alias: ast.alias) -> str:
    """Give the name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


def _stored(node: ast.stmt) -> set[str]:
    """Collect the names that a statement's own targets bind or change; its inner statements are not looked at."""
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return set()
    targets: list[ast.AST] = list(getattr(node, "targets", []))
    targets += [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor) else []
    targets += [item.optional_vars for item in getattr(node, "items", []) if item.optional_vars]
    own = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    targets += [inner.target for child in own for inner in ast.walk(child) if isinstance(inner, ast.NamedExpr)]
    value = getattr(node, "value", None)
    method = value.func if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    if method is not None and method.attr in (CHANGES if isinstance(node, ast.Expr) else PARTS):
        targets.append(method.value)
    return {base for target in targets for base in _bases(target)}


def _bases(target: ast.AST) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        yield from _bases(target.value)
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _bases(item)


def _uses(node: ast.stmt) -> set[str]:
    """Collect the global names that a statement reads; names that are local to its functions are none of them."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return set()
    table = symtable.symtable(ast.unparse(node), "statement", "exec")
    return set(_globals(table)) | set(_quoted(node)) | _stored(node)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _quoted(node: ast.stmt) -> Iterator[str]:
    """Give the names in annotations that are written as text, such as `config: "Config"`."""
    for inner in ast.walk(node):
        annotation = getattr(inner, "annotation", None)
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            yield annotation.value


def _cut(part: Part, wanted: set[str]) -> Part:
    """Leave of an import only what is used: a name or package that is missing and not needed does no harm."""
    node = part.node
    if not isinstance(node, ast.Import | ast.ImportFrom) or part.always:
        return part
    cut = copy.copy(node)
    cut.names = [alias for alias in node.names if bound(alias) in wanted]
    return replace(part, node=cut)
