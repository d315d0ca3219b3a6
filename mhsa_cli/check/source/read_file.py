"""The Python text of a file: a script as it is, the code cells of a notebook, the code blocks of Markdown."""

from __future__ import annotations

import ast
import difflib
import io
import json
import os
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mhsa_cli.check.library_errors import is_python_2, is_unknown_encoding
from mhsa_cli.check.sentences import make_note
from mhsa_cli.check.source.dependencies import Statement, statements_of
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import NOTHING, Note
from mhsa_cli.text import quoted

MAX_BYTES = {".py": 4_000_000, ".md": 4_000_000, ".ipynb": 100_000_000}  # notebooks hold pictures
EXPECTED = "wanted: FILE.py:Name, FILE.ipynb:Name or FILE.md:Name"

_FENCE = re.compile(r"^([ \t]*(?:>[ \t]?)*)(`{3,}|~{3,})[ \t]*\{?\.?(\w*)")
_PYTHON = ("python", "py", "python3", "py3", "ipython", "ipython3", "")  # a fence without a language counts as Python
_MAGIC = re.compile(r"^\s*(%|!|\?)|\?\s*$")
_CONFLICT = re.compile(r"^(<<<<<<<|>>>>>>>)( |$)")


@dataclass(frozen=True)
class Script:
    """Python text with its top-level statements; `place` gives the place of a line in the words of its file."""

    path: Path
    text: str
    tree: ast.Module
    place: Callable[[int], str]
    notes: tuple[Note, ...] = ()

    @cached_property
    def statements(self) -> list[Statement]:
        """The top-level statements. Raises: UsageError if they are nested too deeply."""
        try:
            return statements_of(self.tree)
        except RecursionError as error:
            hint = "put the attention into a file of its own"
            raise UsageError(f"{self.path} is nested too deeply to be read", hint) from error


def read_script(path: Path) -> Script:
    """Read the Python of a file. Raises: UsageError if there is none, or none that can be read."""
    data = _read(path)
    kind = path.suffix.lower()
    if kind == ".py":
        text = _decode(path, data, _encoding(path, data))
        return Script(path, text, _parse(path, text, _line), _line)
    text = _decode(path, data, "utf-8-sig")
    return _notebook(path, text) if kind == ".ipynb" else _markdown(path, text)


_line = "line {}".format


def _read(path: Path) -> bytes:
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path} cannot be read: it is a broken link", "name the file itself, or repair the link")
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"{path} cannot be read: you have no permission for this folder", "chmod u+rX opens it")
    if path.is_dir():
        raise UsageError(f"{path} is a folder", f"mhsa check {quoted(path)} --entry NAME grades every file in it")
    if not path.exists():
        raise UsageError(f"{path}: there is no such file", _similar(path) or EXPECTED)
    if not path.is_file():
        raise UsageError(f"{path} is no regular file", EXPECTED)
    limit = MAX_BYTES.get(path.suffix.lower())
    if limit is None:
        raise UsageError(f"{path} ends in '{path.suffix}'", EXPECTED)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "chmod u+r opens it") from error
    if len(data) > limit:
        hint = "put the attention and what it needs into a file of its own"
        raise UsageError(f"{path} is longer than {limit / 1e6:.0f} MB", hint)
    if not data.strip():
        raise UsageError(f"{path} is empty", "write the class or function to be graded into it", NOTHING)
    return data


def _similar(path: Path) -> str | None:
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in MAX_BYTES]
    except OSError:
        return f"{path.parent} is no folder that can be read"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else None


def _encoding(path: Path, data: bytes) -> str:
    """Encoding that a script declares in its first lines, or utf-8."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:  # an unknown name, or bytes that are not UTF-8
        if is_unknown_encoding(error):
            raise UsageError(f"{path}:1: {error.msg}", "declare utf-8, or remove the coding comment") from error
        return "utf-8-sig"


def _decode(path: Path, data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = "save the file as UTF-8, or declare its encoding in the first line: # -*- coding: latin-1 -*-"
        raise UsageError(f"{path}:{line}: not UTF-8: byte 0x{data[error.start]:02x}", hint) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parse(path: Path, text: str, place: Callable[[int], str]) -> ast.Module:
    """Parse Python. Raises: UsageError with the line, a caret under the column, and the usual fix."""
    try:
        tree = ast.parse(text, str(path))
        compile(tree, str(path), "exec", dont_inherit=True)  # finds more, such as `return` outside a function
        return tree
    except SyntaxError as error:
        raise _syntax_error(path, text, error, place) from error
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL byte; deeply nested brackets
        raise UsageError(f"{path} is not Python: {error or 'nested too deeply'}", EXPECTED) from error


def _syntax_error(path: Path, text: str, error: SyntaxError, place: Callable[[int], str]) -> UsageError:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if _CONFLICT.match(line):
            hint = "keep one of the two versions and delete the lines <<<<<<<, ======= and >>>>>>>"
            return UsageError(f"{path}, {place(number)}: unresolved merge conflict: {line[:40]}", hint)
    number = error.lineno or 1
    line = lines[number - 1] if number <= len(lines) else ""
    shown = line.strip()[:100]
    column = max((error.offset or 1) - 1 - (len(line) - len(line.lstrip())), 0)
    caret = f"\n  {shown}\n  {' ' * column}^" if shown and column <= len(shown) else ""
    message = error.msg or "invalid syntax"
    hint = "Python refuses this line: correct it"
    if is_python_2(error):
        message, hint = (
            f"this is Python 2 ({message.rstrip('?')}?)",
            "write print(...) with brackets; mhsa runs Python 3",
        )
    elif isinstance(error, TabError):
        hint = "indent with spaces only"
    return UsageError(f"{path}, {place(number)}: {message}{caret}", hint)


def _notebook(path: Path, text: str) -> Script:
    try:
        document: Any = json.loads(text)
        cells = document["cells"] if "cells" in document else document["worksheets"][0]["cells"]
        code = [cell for cell in cells if cell.get("cell_type") == "code"]
        sources = list(zip(_cell_numbers(code), map(_source, code), strict=True))
    except (ValueError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        hint = "save it from Jupyter again, or rename it to .py if it is a script"
        raise UsageError(f"{path}{where} is no notebook: not JSON", hint) from error
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise UsageError(f"{path} is no notebook: it has no list of cells", "save it from Jupyter again") from error
    lines: list[str] = []
    places: list[str] = []
    notes: list[Note] = []
    for number, source in sources:
        cell = _without_magic(source.split("\n"))
        if problem := _syntax_problem("\n".join(cell)):
            notes.append(make_note("cell_skipped", where=f"cell {number}, line {problem[0]}", message=problem[1]))
            continue
        lines += cell
        places += [f"cell {number}, line {line}" for line in range(1, len(cell) + 1)]
    return _script(path, lines, lambda line: places[line - 1] if 0 < line <= len(places) else "", notes)


def _cell_numbers(cells: list[dict[str, Any]]) -> list[int]:
    """Number code cells as Jupyter shows them: by execution, or in order if not each was executed."""
    shown = [cell.get("execution_count", cell.get("prompt_number")) for cell in cells]
    filled = [number for number, cell in zip(shown, cells, strict=True) if _source(cell).strip()]
    executed = all(isinstance(number, int) for number in filled) and len(set(filled)) == len(filled)
    return [int(number or 0) if executed else place for place, number in enumerate(shown, 1)]


def _source(cell: dict[str, Any]) -> str:
    source = cell["source"] if "source" in cell else cell["input"]
    return source if isinstance(source, str) else "".join(source)


def _without_magic(lines: list[str]) -> list[str]:
    """Blank IPython lines, and whole cells that start with %% unless it is %%time or similar."""
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%") and not re.match(r"%%(time|timeit|capture|prun)\b", first):
        return [""] * len(lines)
    return [f"{line[: len(line) - len(line.lstrip())]}pass" if _is_magic(line) else line for line in lines]


def _is_magic(line: str) -> bool:
    """Whether a line is for IPython, rather than a `?` in a comment or a `%` that continues a formula."""
    return bool(_MAGIC.search(line)) and "#" not in line.split("?")[0] and not re.match(r"^\s*%\s", line)


def _markdown(path: Path, text: str) -> Script:
    """Keep the code blocks at their line numbers, and blank all other lines."""
    lines = [""] * (text.count("\n") + 1)
    notes = []
    for start, block in _code_blocks(text.split("\n")):
        if problem := _syntax_problem("\n".join(block)):
            where = _line(start + problem[0] - 1)
            notes.append(make_note("code_block_skipped", where=where, message=problem[1]))
        else:
            lines[start - 1 : start - 1 + len(block)] = block
    return _script(path, lines, _line, notes)


def _code_blocks(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each block of Python with the number of its first line."""
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if not opened:
            continue
        start, (prefix, fence, language) = number, opened.groups()
        while number < len(lines) and not lines[number].removeprefix(prefix).strip().startswith(fence):
            number += 1
        if language.lower() in _PYTHON:
            block = [line.removeprefix(prefix) for line in lines[start:number]]
            yield start + 1, textwrap.dedent("\n".join(block)).split("\n")
        number += 1


def _syntax_problem(code: str) -> tuple[int, str] | None:
    """Line and message of the syntax error in a piece of code, or None."""
    try:
        compile(code, "cell", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, str(error) or "nested too deeply"
    return None


def _script(path: Path, lines: list[str], place: Callable[[int], str], notes: list[Note]) -> Script:
    text = "\n".join(lines) + "\n"
    tree = _parse(path, text, place)
    if not tree.body:
        what = "code cells" if path.suffix.lower() == ".ipynb" else "```python blocks"
        hint = "\n  ".join(note.text for note in notes) or EXPECTED
        raise UsageError(f"{path} has no {what} with Python code", hint, NOTHING)
    return Script(path, text, tree, place, tuple(notes))
