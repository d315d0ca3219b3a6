"""Trace the user's code: the instructions that a run executes, and the functions that it enters, in any user file."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mhsa_cli

# Folders of libraries; what lies in no such folder is the user's.
LIBRARIES = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *{sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")},
        Path(mhsa_cli.__file__).parent,
    )
)
INLINE = ("<lambda>", "<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")  # code within that of a function
SETTLED = 20_000  # instructions of a call, none of them new, after which it is traced by lines until one is
Point = tuple[int, int]  # line, column
Place = tuple[str, int, int]  # file, line, column


@dataclass(frozen=True, slots=True)
class Entered:
    """A function of the user's that a run entered: its file, its first line, and the class of its first argument."""

    file: str
    line: int
    owner: type | None


@dataclass
class Trace:
    """What a run executed: instructions of the user's code, by their offsets, and the functions that were entered.

    `entered` is in order, by the end of the calling expression; None stands for a call from outside the user's code.
    """

    # By file as well: equal code at the same lines of two files is equal.
    ran: dict[tuple[str, CodeType], set[int]] = field(default_factory=dict)
    entered: dict[Place | None, list[Entered]] = field(default_factory=dict)

    @cached_property
    def _executed(self) -> dict[str, list[tuple[Point, Point]]]:
        """Where the instructions of each file start and end, in order."""
        found: dict[str, set[tuple[Point, Point]]] = {}
        for (file, code), offsets in self.ran.items():
            spans, positions = found.setdefault(file, set()), _positions(code)
            for line, end_line, column, end_column in (positions[at // 2] for at in offsets):
                if line is not None and end_line is not None and column is not None and end_column is not None:
                    spans.add(((line, column), (end_line, end_column)))
        return {file: sorted(spans) for file, spans in found.items()}

    def executed(self, file: str, node: ast.stmt | ast.expr) -> bool:
        """Whether an instruction within a node ran."""
        spans = self._executed.get(file, [])
        start, end = (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
        from_start = islice(spans, bisect_left(spans, (start, start)), None)
        return any(last <= end for _, last in takewhile(lambda span: span[0] <= end, from_start))

    def functions_at(self, file: str, node: ast.AST) -> list[Entered]:
        """List the functions that an expression entered."""
        if not isinstance(node, ast.expr) or node.end_lineno is None or node.end_col_offset is None:
            return []
        return self.entered.get((file, node.end_lineno, node.end_col_offset), [])

    def enter(self, place: Place | None, one: Entered) -> None:
        """Record a function that was entered."""
        known = self.entered.setdefault(place, [])
        if one not in known:
            known.append(one)

    def __or__(self, other: Trace) -> Trace:
        """Join what two runs executed."""
        codes = {**self.ran, **other.ran}
        both = Trace({code: self.ran.get(code, set()) | other.ran.get(code, set()) for code in codes})
        for place, functions in (*self.entered.items(), *other.entered.items()):
            for one in functions:
                both.enter(place, one)
        return both


@contextmanager
def tracing(into: Trace | None = None) -> Iterator[Trace]:
    """Trace the user's code that runs in the block, maybe into what was traced before."""
    found, before = into or Trace(), sys.gettrace()

    def call(frame: FrameType, event: str, _: Any) -> Any:
        if not is_users(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if frame.f_code.co_name not in INLINE:
            found.enter(_calling_place(frame), _entered(frame))
        ran = found.ran.setdefault((frame.f_code.co_filename, frame.f_code), set())
        left = SETTLED

        def instruction(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_lasti not in ran:
                ran.add(frame.f_lasti)
                left = SETTLED
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            elif (left := left - 1) == 0:  # a long loop
                frame.f_trace_opcodes, frame.f_trace_lines = False, True
            return instruction

        return instruction

    sys.settrace(call)
    try:
        yield found
    finally:
        sys.settrace(before)


def _entered(frame: FrameType) -> Entered:
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return Entered(code.co_filename, code.co_firstlineno, None if first is None else type(first))


def _calling_place(frame: FrameType) -> Place | None:
    """The end of the user's expression that called, maybe through a library; None if it was called from outside."""
    caller = frame.f_back
    while caller is not None and caller.f_trace is None:
        caller = caller.f_back
    if caller is None:
        return None
    _, line, _, column = _positions(caller.f_code)[caller.f_lasti // 2]
    return None if line is None or column is None else (caller.f_code.co_filename, line, column)


@lru_cache(maxsize=256)
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a file is the user's: no library's, and no code that stands in no file."""
    return not file.startswith((*LIBRARIES, "<")) and "site-packages" not in file and "dist-packages" not in file
