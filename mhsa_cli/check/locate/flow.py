"""What a block's code runs, in order: its syntax tree walked as Python evaluates it, with its own helpers followed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

Function = ast.FunctionDef | ast.AsyncFunctionDef
CALLS = ("forward", "__call__", "call")
MAKES = ("__init__", "__post_init__", "setup", "build")


@dataclass(frozen=True, slots=True)
class Step:
    """A node as it is evaluated, the function that it stands in, and whether that is the block's own."""

    node: ast.AST
    function: Function | None
    own: bool


@dataclass(slots=True)
class Flow:
    """What a call runs, what building it runs before, and the functions that were followed, by name."""

    call: list[Step] = field(default_factory=list)
    making: list[Step] = field(default_factory=list)
    helpers: dict[str, Function] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Scope:
    function: Function | None
    owner: ast.ClassDef | None
    own: bool
    into: list[Step]


def flow_of(text: str, name: str) -> Flow:
    """Follow the code of a block: a class, a function, or an instance."""
    walk = _Walk(ast.parse(text))
    block, made = walk.known.get(name), walk.class_of(name)
    if made is not None:
        walk.enter_class(made, own=True)
    if isinstance(block, Function):
        walk.enter(block, _Scope(block, None, made is None, walk.flow.call if made is None else walk.flow.making))
    return walk.flow


def parts_of(text: str, name: str) -> tuple[ast.ClassDef | Function | None, Function | None]:
    """Give the class or function that a block is or is made by, and what a call of it runs first."""
    walk = _Walk(ast.parse(text))
    block, made = walk.known.get(name), walk.class_of(name)
    if made is None:
        return (block, block) if isinstance(block, Function) else (None, None)
    return made, next((method for call in CALLS if (method := walk.method(made, call))), None)


class _Walk:
    """Follows names from function to function; each function is entered once, where it is first used."""

    def __init__(self, tree: ast.Module) -> None:
        """Collect what the file defines: functions and values at its top, classes wherever they stand."""
        self.flow = Flow()
        self.entered: set[int] = set()
        self.known: dict[str, ast.AST] = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, Function):
                self.known[node.name] = node
            elif isinstance(node, ast.Assign):
                self.known.update((t.id, node) for t in node.targets if isinstance(t, ast.Name))

    def class_of(self, name: str) -> ast.ClassDef | None:
        """Give the class that a name stands for, or that its instance or factory is made of."""
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
                self.enter(method, _Scope(method, node, own, self.flow.call))
        for name in MAKES:
            if made := self.method(node, name):
                self.enter(made, _Scope(made, node, own, self.flow.making))

    def enter(self, function: Function, scope: _Scope) -> None:
        if id(function) not in self.entered:
            self.entered.add(id(function))
            self.flow.helpers.setdefault(function.name, function)
            for statement in function.body:
                self._visit(statement, scope)

    def _visit(self, node: ast.AST, scope: _Scope) -> None:
        if isinstance(node, ast.ClassDef):
            return  # entered where it is used
        for child in _in_order(node):
            self._visit(child, scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # after the arguments
            self._follow(node.func, scope)
            scope.into.append(Step(node.func, scope.function, scope.own))
        self._follow(node, scope)
        scope.into.append(Step(node, scope.function, scope.own))

    def _follow(self, node: ast.AST, scope: _Scope) -> None:
        """Enter what a name stands for: a helper, a method, a class of the file, what an attribute was made of."""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._use(self.known.get(node.id), scope)
        elif (
            isinstance(node, ast.Attribute) and scope.owner is not None and isinstance(node.value, ast.Name | ast.Call)
        ):
            if method := self.method(scope.owner, node.attr):
                if isinstance(node.value, ast.Name):
                    self.enter(method, _Scope(method, scope.owner, scope.own, scope.into))
            elif isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "self":
                for thing in self._made_of(scope.owner, node.attr):
                    self._use(thing, scope)

    def _use(self, thing: ast.AST | None, scope: _Scope) -> None:
        if isinstance(thing, Function):
            self.enter(thing, _Scope(thing, None, False, scope.into))
        elif isinstance(thing, ast.ClassDef):
            self.enter_class(thing, own=False, calls=scope.into is self.flow.call)
        elif isinstance(thing, ast.Assign) and id(thing) not in self.entered:
            self.entered.add(id(thing))
            self._visit(thing, _Scope(None, None, False, self.flow.making))

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """Find a method of a class or of those classes of the file that it inherits from."""
        for node in owner.body:
            if isinstance(node, Function) and node.name == name:
                return node
        bases = [self.known.get(base.id) for base in owner.bases if isinstance(base, ast.Name)]
        found = [self.method(base, name) for base in bases if isinstance(base, ast.ClassDef) and base is not owner]
        return next((method for method in found if method), None)

    def _made_of(self, owner: ast.ClassDef, attribute: str) -> Iterator[ast.AST]:
        """Give classes of the file that a constructor makes an attribute of, and functions that it is."""
        constructor = self.method(owner, "__init__")
        for value in values_of(constructor, f"self.{attribute}") if constructor else ():
            names = [n.id for n in ast.walk(value) if isinstance(n, ast.Name)]
            for local in [v for name in names if constructor for v in values_of(constructor, name)]:
                names += [n.id for n in ast.walk(local) if isinstance(n, ast.Name)]
            yield from (self.known[n] for n in names if isinstance(self.known.get(n), ast.ClassDef))
            if isinstance(value, ast.Name) and isinstance(self.known.get(value.id), Function):
                yield self.known[value.id]


def values_of(function: Function, name: str) -> list[ast.expr]:
    """List what a function assigns to a name or an attribute ("self.heads"), in the order of the text."""
    return [value for target, value in _assigned(function) if target == name]


@lru_cache(maxsize=64)
def _assigned(function: Function) -> tuple[tuple[str, ast.expr], ...]:
    """List what a function assigns, each with the source of what it assigns it to."""
    found = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    return tuple((ast.unparse(target), n.value) for n in found for target in n.targets)


def _in_order(node: ast.AST) -> list[ast.AST]:
    """List the children of a node as they are evaluated: values before targets, arguments before the call."""
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
