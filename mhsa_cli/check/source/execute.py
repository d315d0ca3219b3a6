"""Runs the statements that a block needs. One that fails is kept as a failure, and what follows is tried all the same.

This is the one place where somebody else's code begins to run: `mhsa check` does it in a process of its own.
"""

from __future__ import annotations
import __future__

import argparse
import ast
import copy
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

from mhsa_cli.check.source.dependencies import Definition, Part, bound
from mhsa_cli.check.source.packages import as_the_user_wrote, make_module, way_out
from mhsa_cli.check.source.read_file import Script

POSTPONED = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Failure:
    """A needed statement that failed: its first line, what it raised in words, and a way out or ""."""

    line: int
    place: str
    said: str
    hint: str

    def __str__(self) -> str:
        return f"{self.place}: {self.said}" + (f" ({self.hint})" if self.hint else "")


def run(script: Script, parts: Sequence[Part]) -> tuple[ModuleType, list[Failure]]:
    """Run statements in a new module, in which tracebacks and `inspect.getsource` find their lines."""
    name = str(script.path)
    linecache.cache[name] = (len(script.text), None, script.text.splitlines(keepends=True), name)
    flags = _future_flags(parts)
    failures: list[Failure] = []
    missing: set[str] = set()
    with (
        mock.patch.object(sys, "dont_write_bytecode", True),  # no __pycache__ beside what is imported meanwhile
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", _defaults),
    ):
        module = make_module(script.path, script.tree)
        for part in parts:
            error = _attempt(part.node, module, name, flags, missing)
            if error is not None:
                if isinstance(part.node, ast.Import | ast.ImportFrom):
                    missing |= {bound(alias) for alias in part.node.names}
                failures.append(_failure(script, part, error))
    return module, failures


_parse = argparse.ArgumentParser.parse_known_args


def _defaults(
    self: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: Any = None
) -> tuple[Any, list[str]]:
    """Read a command line that nobody wrote: every argument has its default, also one that is required."""
    for action in self._actions:
        action.required = False
    for group in self._mutually_exclusive_groups:
        group.required = False
    return _parse(self, [] if args is None else args, namespace)


def _future_flags(parts: Sequence[Part]) -> int:
    flags = 0
    for node in (part.node for part in parts):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags


def _attempt(node: ast.stmt, module: ModuleType, name: str, flags: int, missing: set[str]) -> BaseException | None:
    """Run a statement; a definition that fails once more without its annotations, and without what is missing.

    Annotations and decorators of packages that are not there (jaxtyping, beartype) are for readers and checkers: the
    definition works without them. Returns what it raised at first, or None.
    """
    first = _execute(node, module, name, flags)
    if first is None or not isinstance(node, Definition):
        return first
    bare = copy.deepcopy(node)
    for inner in (inner for inner in ast.walk(bare) if isinstance(inner, Definition)):
        used = {one: {n.id for n in ast.walk(one) if isinstance(n, ast.Name)} for one in inner.decorator_list}
        inner.decorator_list = [one for one, names in used.items() if not names & missing]
    for form in (node, bare):
        if _execute(form, module, name, flags | POSTPONED) is None:
            return None
    return first


def _execute(node: ast.stmt, module: ModuleType, name: str, flags: int) -> BaseException | None:
    code = compile(ast.Module([node], []), name, "exec", flags, dont_inherit=True)
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        return error
    return None


def _failure(script: Script, part: Part, error: BaseException) -> Failure:
    """Put into words what a statement raised, with the line of this file at which it did."""
    line, trace = part.node.lineno, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(script.path):
            line = trace.tb_lineno
        trace = trace.tb_next
    said = " ".join(as_the_user_wrote(error).split())[:300]
    if isinstance(error, SystemExit):
        said = f"it ends the program (sys.exit({'' if error.code is None else repr(error.code)}))"
    elif isinstance(error, EOFError):
        said = "it waits for input(), and there is nobody to type"
    return Failure(line, script.place(line), said, way_out(error))
