"""The nodes that a block's code runs, in order of evaluation; here followed by names, within one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from mhsa_cli.check.source.trace import Trace

Function = ast.FunctionDef | ast.AsyncFunctionDef
CALLS = ("forward", "__call__", "call")
CONSTRUCTORS = ("__init__", "__post_init__", "setup", "build")
# Classes are entered at their first use; the others are shared by all nodes of a tree.
_SKIPPED = (ast.ClassDef, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@dataclass(slots=True)
class Flow:
    """The nodes of a call, those of the construction before it, and the functions that were followed, by name.

    `function` maps a node to the function around it, `file` to its file; `own` holds the nodes of the block itself, not
    of its helpers; `skipped` those statements of entered functions that a call does not run, where that is known.
    """

    call: list[ast.AST] = field(default_factory=list)
    construction: list[ast.AST] = field(default_factory=list)
    helpers: dict[str, Function] = field(default_factory=dict)
    function: dict[ast.AST, Function | None] = field(default_factory=dict)
    file: dict[ast.AST, str] = field(default_factory=dict)
    own: set[ast.AST] = field(default_factory=set)
    skipped: list[ast.AST] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a node stands: its function, the class around that, and whether it is the block's own.

    `into` is the list of a `Flow` that its nodes go to; `file` and `trace` are known only of code that was traced.
    """

    function: Function | None
    owner: ast.ClassDef | None
    own: bool
    into: list[ast.AST]
    file: str = ""
    trace: Trace | None = None


class FlowBuilder:
    """Visits statements in order of evaluation; what a node enters is visited before it, each function once."""

    def __init__(self) -> None:
        self.flow = Flow()
        self.entered: set[ast.AST] = set()

    def follow(self, node: ast.AST, scope: Scope) -> None:
        """Enter what a node stands for or calls."""
        raise NotImplementedError

    def runs(self, node: ast.AST, scope: Scope) -> bool:
        """Whether a node runs, as far as that is known."""
        return True

    def enter(self, function: Function, scope: Scope, name: str = "") -> None:
        if name:
            self.flow.helpers.setdefault(name, function)
        if function not in self.entered:
            self.entered.add(function)
            self.flow.helpers.setdefault(function.name, function)
            self.flow.file.update(dict.fromkeys(ast.walk(function), scope.file))
            for statement in function.body:
                self.visit(statement, scope)

    def visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, _SKIPPED):
            return
        if not self.runs(node, scope):
            if not isinstance(node, Function) and (isinstance(node, ast.stmt) or _computes(node)):
                self.flow.skipped.append(node)
            return
        for child in _in_order(node):
            self.visit(child, scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # after the arguments
            self._add(node.func, scope)
        self._add(node, scope)

    def _add(self, node: ast.AST, scope: Scope) -> None:
        self.follow(node, scope)
        scope.into.append(node)
        self.flow.function[node] = scope.function
        if scope.own:
            self.flow.own.add(node)


def flow_of(text: str, name: str) -> Flow:
    """Follow the code of a block by its names: a class, a function, or an instance."""
    builder = _ByName(ast.parse(text))
    block, cls = builder.known.get(name), builder.class_of(name)
    if cls is not None:
        builder.enter_class(cls, own=True)
    if isinstance(block, Function):
        flow = builder.flow
        builder.enter(block, Scope(block, None, cls is None, flow.call if cls is None else flow.construction))
    return builder.flow


def definition_and_call(text: str, name: str) -> tuple[ast.ClassDef | Function | None, Function | None]:
    """The class or function of a block, and the function that a call of it enters."""
    builder = _ByName(ast.parse(text))
    block, cls = builder.known.get(name), builder.class_of(name)
    if cls is None:
        return (block, block) if isinstance(block, Function) else (None, None)
    return cls, next((method for call in CALLS if (method := builder.method(cls, call))), None)


class _ByName(FlowBuilder):
    """Follows names from function to function."""

    def __init__(self, tree: ast.Module) -> None:
        """Collect the file's definitions: functions and values at the top level, classes at any level."""
        super().__init__()
        self.known: dict[str, ast.AST] = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, Function):
                self.known[node.name] = node
            elif isinstance(node, ast.Assign):
                self.known.update((t.id, node) for t in node.targets if isinstance(t, ast.Name))

    def class_of(self, name: str) -> ast.ClassDef | None:
        """The class that a name stands for, or the class of the instance or factory it names."""
        block = self.known.get(name)
        if isinstance(block, ast.ClassDef):
            return block
        values: list[ast.AST] = [block] if isinstance(block, ast.Assign) else []
        if isinstance(block, Function):
            values = [n for n in ast.walk(block) if isinstance(n, ast.Return)]
        called = [n.func for value in values for n in ast.walk(value) if isinstance(n, ast.Call)]
        found = [self.known.get(f.id) for f in called if isinstance(f, ast.Name)]
        return next((c for c in found if isinstance(c, ast.ClassDef)), None)

    def enter_class(self, node: ast.ClassDef, *, own: bool, calls: bool = True) -> None:
        if calls:
            entries = [method for name in CALLS if (method := self.method(node, name))][:1]
            others = [m for m in node.body if isinstance(m, Function) and not m.name.startswith("_")]
            for method in entries or others:
                self.enter(method, Scope(method, node, own, self.flow.call))
        for name in CONSTRUCTORS:
            if constructor := self.method(node, name):
                self.enter(constructor, Scope(constructor, node, own, self.flow.construction))

    def follow(self, node: ast.AST, scope: Scope) -> None:
        """Enter what a name stands for: a helper, a method, a class of the file, the value of an attribute."""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._use(self.known.get(node.id), scope)
        elif (
            isinstance(node, ast.Attribute) and scope.owner is not None and isinstance(node.value, ast.Name | ast.Call)
        ):
            if method := self.method(scope.owner, node.attr):
                if isinstance(node.value, ast.Name):
                    self.enter(method, Scope(method, scope.owner, scope.own, scope.into))
            elif isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "self":
                for target in self._values_of_attribute(scope.owner, node.attr):
                    self._use(target, scope)

    def _use(self, target: ast.AST | None, scope: Scope) -> None:
        if isinstance(target, Function):
            self.enter(target, Scope(target, None, False, scope.into))
        elif isinstance(target, ast.ClassDef):
            self.enter_class(target, own=False, calls=scope.into is self.flow.call)
        elif isinstance(target, ast.Assign) and target not in self.entered:
            self.entered.add(target)
            self.visit(target, Scope(None, None, False, self.flow.construction))

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """Find a method of a class, or of its base classes in the file."""
        for node in owner.body:
            if isinstance(node, Function) and node.name == name:
                return node
        bases = [self.known.get(base.id) for base in owner.bases if isinstance(base, ast.Name)]
        found = [self.method(base, name) for base in bases if isinstance(base, ast.ClassDef) and base is not owner]
        return next((method for method in found if method), None)

    def _values_of_attribute(self, owner: ast.ClassDef, attribute: str) -> Iterator[ast.AST]:
        """Yield the classes and functions of the file that a constructor assigns to an attribute."""
        constructor = self.method(owner, "__init__")
        for value in values_of(constructor, f"self.{attribute}") if constructor else ():
            names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
            for local in [v for name in names if constructor for v in values_of(constructor, name)]:
                names += [n.id for n in ast.walk(local) if isinstance(n, ast.Name)]
            yield from (self.known[n] for n in names if isinstance(self.known.get(n), ast.ClassDef))
            if isinstance(value, ast.Name) and isinstance(self.known.get(value.id), Function):
                yield self.known[value.id]


def _computes(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call | ast.BinOp) for inner in ast.walk(node))


def values_of(function: Function, name: str) -> list[ast.expr]:
    """List the values that a function assigns to a name or an attribute ("self.heads"), in order of the text."""
    return [value for target, value in _assigned(function) if target == name]


@lru_cache(maxsize=64)
def _assigned(function: Function) -> tuple[tuple[str, ast.expr], ...]:
    """List the assignments of a function: source text of the target, and value."""
    found = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    return tuple((ast.unparse(target), n.value) for n in found for target in n.targets)


def _in_order(node: ast.AST) -> list[ast.AST]:
    """List the children of a node in order of evaluation: values before targets, arguments before the call."""
    match node:
        case ast.Assign():
            return [node.value, *node.targets]
        case ast.AnnAssign():
            return [*([node.value] if node.value else []), node.target]
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            return [*node.generators, node.elt]
        case ast.Call(func=ast.Attribute() as func):
            return [func.value, *node.args, *node.keywords]
        case ast.Call():
            return [*node.args, *node.keywords, node.func]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return list(node.body)
        case _:
            return list(ast.iter_child_nodes(node))
