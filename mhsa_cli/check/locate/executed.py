"""The nodes that a block's code ran, in order of evaluation: what a trace saw, in all of the user's files."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import cached_property, lru_cache

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.flow import Flow, FlowBuilder, Function, Scope
from mhsa_cli.check.source.trace import Entered, Trace


@dataclass(frozen=True)
class Runs:
    """Traces of a block: when its file was loaded, when it was built, and when it was called.

    `file` and `name` are those of the block, `object_class` is the class of what was called.
    """

    file: str
    name: str
    object_class: type
    loading: Trace
    building: Trace
    call: Trace

    @cached_property
    def construction(self) -> Trace:
        """What ran before the call."""
        return self.loading | self.building


def executed_flow(runs: Runs) -> Flow:
    """List what a block ran; an instance was built when its file was loaded."""
    builder = _Executed(runs)
    for one in runs.call.entered.get(None, ()):
        builder.enter_traced(one, runs.call, builder.flow.call, own=True)
    for one in runs.building.entered.get(None, ()):
        builder.enter_traced(one, runs.construction, builder.flow.construction)
    builder.use_global(runs.file, runs.name)
    return builder.flow


class _Executed(FlowBuilder):
    """Visits what ran, and enters the functions that each expression entered."""

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self.traced = runs

    def enter_traced(
        self, one: Entered, trace: Trace, into: list[ast.AST], *, own: bool = False, name: str = ""
    ) -> None:
        """Enter a function, maybe under another name."""
        if function := _definitions(one.file).functions.get(one.line):
            own = own or one.owner is self.traced.object_class
            self.enter(function, Scope(function, None, own, into, one.file, trace), name)

    def runs(self, node: ast.AST, scope: Scope) -> bool:
        """Whether an instruction of a node ran; a function runs where it is called."""
        if isinstance(node, Function) or scope.trace is None:
            return scope.trace is None
        return not isinstance(node, ast.stmt | ast.expr) or scope.trace.executed(scope.file, node)

    def follow(self, node: ast.AST, scope: Scope) -> None:
        """Enter what an expression entered, and the value of a global at its first use."""
        if scope.trace is not None:
            for one in scope.trace.functions_at(scope.file, node):
                self.enter_traced(one, scope.trace, scope.into, name=syntax.called(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.use_global(scope.file, node.id)

    def use_global(self, file: str, name: str) -> None:
        """Visit the statement that sets a global."""
        statement = _definitions(file).globals.get(name)
        if statement is not None and statement not in self.entered:
            self.entered.add(statement)
            trace = self.traced.construction
            self.flow.file.update(dict.fromkeys(ast.walk(statement), file))
            self.visit(statement, Scope(None, None, False, self.flow.construction, file, trace))


@dataclass(frozen=True, slots=True)
class _Definitions:
    """The functions of a file by their first line, that of a decorator included, and the statements of its globals."""

    functions: dict[int, Function]
    globals: dict[str, ast.Assign]


def _definitions(file: str) -> _Definitions:
    return _parsed("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _parsed(text: str) -> _Definitions:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return _Definitions({}, {})
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    made = [node for node in tree.body if isinstance(node, ast.Assign)]
    return _Definitions(
        {min([one.lineno, *(d.lineno for d in one.decorator_list)]): one for one in functions},
        {target.id: node for node in made for target in node.targets if isinstance(target, ast.Name)},
    )
