"""Runs the statements that a block needs. A failed statement is recorded, and the following ones run all the same.

This is the one place where the user's code starts to run: `mhsa check` calls it in a process of its own.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import copy
import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

from mhsa_cli.check.source.dependencies import Definition, Statement, bound_name
from mhsa_cli.check.source.packages import error_text, install_hint, make_module, own_packages
from mhsa_cli.check.source.read_file import Script
from mhsa_cli.check.source.trace import Trace, tracing

POSTPONED = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Failure:
    """A needed statement that failed: where, its error in words, and a hint or ""."""

    place: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" + (f" ({self.hint})" if self.hint else "")


def run_statements(script: Script, statements: Sequence[Statement]) -> tuple[ModuleType, list[Failure], Trace]:
    """Run statements in a new module whose lines tracebacks and `inspect.getsource` can find.

    Returns the module, what failed, and what ran, without imports: a library may run millions of lines then.
    """
    name = str(script.path)
    linecache.cache[name] = (len(script.text), None, script.text.splitlines(keepends=True), name)
    flags = _future_flags(statements)
    failures: list[Failure] = []
    missing: set[str] = set()
    trace = Trace()
    with (
        mock.patch.object(sys, "dont_write_bytecode", True),  # no __pycache__ beside imported files
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", _parse_defaults),
        uncompiled(),
        own_packages(script.path),
    ):
        module = make_module(script.path, script.tree)
        for statement in statements:
            imported = statement.node.names if isinstance(statement.node, ast.Import | ast.ImportFrom) else []
            with nullcontext() if imported else tracing(trace):
                error = _run(statement.node, module, name, flags, missing)
            if error is not None:
                missing |= {bound_name(alias) for alias in imported}
                failures.append(_failure(script, statement, error))
    return module, failures, trace


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compile nothing: compiled code is no Python that can be traced."""
    import torch  # where a file is only read, it is not loaded

    with mock.patch.object(torch, "compile", _as_it_is), mock.patch.object(torch.jit, "script", _as_it_is):
        yield


def _as_it_is(obj: Any = None, *_: Any, **__: Any) -> Any:
    """Compile nothing; without an object, as a decorator with options."""
    return _as_it_is if obj is None else obj


_parse_known_args = argparse.ArgumentParser.parse_known_args


def _parse_defaults(
    self: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: Any = None
) -> tuple[Any, list[str]]:
    """Parse an empty command line: every argument has its default, also a required one."""
    for action in self._actions:
        action.required = False
    for group in self._mutually_exclusive_groups:
        group.required = False
    return _parse_known_args(self, [] if args is None else args, namespace)


def _future_flags(statements: Sequence[Statement]) -> int:
    flags = 0
    for node in (statement.node for statement in statements):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags


def _run(node: ast.stmt, module: ModuleType, name: str, flags: int, missing: set[str]) -> BaseException | None:
    """Run a statement; retry a failed definition without annotations, then without decorators that are missing.

    Annotations and decorators of missing packages (jaxtyping, beartype) only document and check: the definition works
    without them. Returns the first error, or None.
    """
    first = _execute(node, module, name, flags)
    if first is None or not isinstance(node, Definition):
        return first
    bare = copy.deepcopy(node)
    for inner in (inner for inner in ast.walk(bare) if isinstance(inner, Definition)):
        used = {one: {n.id for n in ast.walk(one) if isinstance(n, ast.Name)} for one in inner.decorator_list}
        inner.decorator_list = [one for one, names in used.items() if not names & missing]
    for retried in (node, bare):
        if _execute(retried, module, name, flags | POSTPONED) is None:
            return None
    return first


def _execute(node: ast.stmt, module: ModuleType, name: str, flags: int) -> BaseException | None:
    code = compile(ast.Module([node], []), name, "exec", flags, dont_inherit=True)
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        return error
    return None


def _failure(script: Script, statement: Statement, error: BaseException) -> Failure:
    """Describe the error of a statement, with the line of this file that raised it."""
    line, trace = statement.node.lineno, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(script.path):
            line = trace.tb_lineno
        trace = trace.tb_next
    message = " ".join(error_text(error).split())[:300]
    if isinstance(error, SystemExit):
        message = f"it ends the program (sys.exit({'' if error.code is None else repr(error.code)}))"
    elif isinstance(error, EOFError):
        message = "it waits for input(), which is not available here"
    return Failure(script.place(line), message, install_hint(error, script.path))
