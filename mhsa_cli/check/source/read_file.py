"""Python text out of a file: a script as it is, of a notebook its code cells, of Markdown its code blocks."""

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
from pathlib import Path
from typing import Any

from mhsa_cli.check.foreign_words import is_python_2, is_unknown_encoding
from mhsa_cli.check.sentences import noted
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import Note

LIMIT = {".py": 4_000_000, ".md": 4_000_000, ".ipynb": 100_000_000}  # bytes; pictures make notebooks long
FORMS = "FILE.py:Name, FILE.ipynb:Name or FILE.md:Name"

_FENCE = re.compile(r"^([ \t]*(?:>[ \t]?)*)(`{3,}|~{3,})[ \t]*\{?\.?(\w*)")
_PYTHON = ("python", "py", "python3", "py3", "ipython", "ipython3")
_MAGIC = re.compile(r"^\s*(%|!|\?)|\?\s*$")
_MARKER = re.compile(r"^(<<<<<<<|>>>>>>>)( |$)")


@dataclass(frozen=True)
class Script:
    """Python text with its statements; `place` says in the words of its file where a line of it is."""

    path: Path
    text: str
    tree: ast.Module
    place: Callable[[int], str]
    notes: tuple[Note, ...] = ()


def read_script(path: Path) -> Script:
    """Read the Python of a file. Raises: UsageError if there is none, or none that can be read."""
    data = _read(path)
    kind = path.suffix.lower()
    if kind == ".py":
        text = _decode(path, data, _encoding(path, data))
        return Script(path, text, parse(path, text), _line)
    text = _decode(path, data, "utf-8-sig")
    return _notebook(path, text) if kind == ".ipynb" else _markdown(path, text)


_line = "line {}".format


def _read(path: Path) -> bytes:
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path} cannot be read: it is a link to nowhere", "hand in the file itself, or mend the link")
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"{path} cannot be read: it is a folder that is closed to you", "open it: chmod u+rX")
    if path.is_dir():
        raise UsageError(f"{path} is a folder", f"mhsa check {path} --entry NAME grades every file in it")
    if not path.exists():
        raise UsageError(f"{path}: no such file", _similar(path) or f"wanted: {FORMS}")
    if not path.is_file():
        raise UsageError(f"{path} is no regular file", f"wanted: {FORMS}")
    if path.suffix.lower() not in LIMIT:
        raise UsageError(f"{path} ends in '{path.suffix}'", f"wanted: {FORMS}")
    limit = LIMIT[path.suffix.lower()]
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        hint = "give yourself the permission to read it"
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from error
    if len(data) > limit:
        hint = "put the attention and what it needs into a file of its own"
        raise UsageError(f"{path} is longer than {limit / 1e6:.0f} MB", hint)
    if not data.strip():
        raise UsageError(f"{path} is empty", "write the class or function that is to be graded into it")
    return data


def _similar(path: Path) -> str | None:
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in LIMIT]
    except OSError:
        return f"{path.parent} is no folder that can be read"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else None


def _encoding(path: Path, data: bytes) -> str:
    """Find the encoding that a script names in its first lines, or utf-8."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:  # an unknown name, or bytes that are not UTF-8
        if is_unknown_encoding(error):
            raise UsageError(f"{path}:1: {error.msg}", "name utf-8, or leave the coding comment out") from error
        return "utf-8-sig"


def _decode(path: Path, data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = "save the file as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-"
        raise UsageError(f"{path}:{line}: not UTF-8: byte 0x{data[error.start]:02x}", hint) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse(path: Path, text: str, place: Callable[[int], str] = _line) -> ast.Module:
    """Parse Python. Raises: UsageError with the line, a caret under the spot, and the usual way out."""
    try:
        tree = ast.parse(text, str(path))
        compile(tree, str(path), "exec", dont_inherit=True)  # finds more, such as a `return` outside of a function
        return tree
    except SyntaxError as error:
        raise _syntax_error(path, text, error, place) from error
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL byte; brackets in brackets in brackets
        raise UsageError(f"{path} is not Python: {error or 'nested too deeply'}", f"wanted: {FORMS}") from error


def _syntax_error(path: Path, text: str, error: SyntaxError, place: Callable[[int], str]) -> UsageError:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if _MARKER.match(line):
            hint = "keep one of the two versions and delete the lines <<<<<<<, ======= and >>>>>>>"
            return UsageError(f"{path}, {place(number)}: a merge conflict was left in it: {line[:40]}", hint)
    number = error.lineno or 1
    line = lines[number - 1] if number <= len(lines) else ""
    shown = line.strip()[:100]
    column = max((error.offset or 1) - 1 - (len(line) - len(line.lstrip())), 0)
    caret = f"\n  {shown}\n  {' ' * column}^" if shown and column <= len(shown) else ""
    said = error.msg or "invalid syntax"
    hint = "Python itself refuses this: mend the line"
    if is_python_2(error):
        said, hint = f"this is Python 2 ({said.rstrip('?')}?)", "write print(...) with parentheses; mhsa runs Python 3"
    elif isinstance(error, TabError):
        hint = "indent with spaces alone"
    return UsageError(f"{path}, {place(number)}: {said}{caret}", hint)


def _notebook(path: Path, text: str) -> Script:
    try:
        document: Any = json.loads(text)
        cells = document["cells"] if "cells" in document else document["worksheets"][0]["cells"]
        sources = [(number, _source(cell)) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code"]
    except (ValueError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        hint = "save it from Jupyter again, or name it .py if it is a script"
        raise UsageError(f"{path}{where} is no notebook: not JSON", hint) from error
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise UsageError(f"{path} is no notebook: it has no list of cells", "save it from Jupyter again") from error
    lines: list[str] = []
    places: list[str] = []
    notes: list[Note] = []
    for number, source in sources:
        own = _without_magic(source.split("\n"))
        if problem := _problem("\n".join(own)):
            notes.append(noted("cell_left_out", where=f"cell {number}, line {problem[0]}", said=problem[1]))
            continue
        lines += own
        places += [f"cell {number}, line {line}" for line in range(1, len(own) + 1)]
    return _joined(path, lines, lambda line: places[line - 1] if 0 < line <= len(places) else "", notes)


def _source(cell: dict[str, Any]) -> str:
    source = cell["source"] if "source" in cell else cell["input"]
    return source if isinstance(source, str) else "".join(source)


def _without_magic(lines: list[str]) -> list[str]:
    """Blank the lines that are for IPython: of a cell that begins with %% all but %%time and its like."""
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%") and not re.match(r"%%(time|timeit|capture|prun)\b", first):
        return [""] * len(lines)
    out = []
    for line in lines:
        magic = _MAGIC.search(line) and not _inside_code(line)
        out.append(line[: len(line) - len(line.lstrip())] + "pass" if magic else line)
    return out


def _inside_code(line: str) -> bool:
    """Tell whether a line that looks like magic is Python: a `?` in a comment, a `%` that goes on with a formula."""
    return "#" in line.split("?")[0] or re.match(r"^\s*%\s", line) is not None


def _markdown(path: Path, text: str) -> Script:
    """Keep every line in its place, so that lines count as in the file; what is no code becomes blank."""
    lines = [""] * (text.count("\n") + 1)
    notes = []
    for start, block in _blocks(text.split("\n")):
        if problem := _problem("\n".join(block)):
            notes.append(noted("block_left_out", where=_line(start + problem[0] - 1), said=problem[1]))
        else:
            lines[start - 1 : start - 1 + len(block)] = block
    return _joined(path, lines, _line, notes)


def _blocks(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Give each block of Python with the number of its first line; a fence without a language counts as Python."""
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if not opened:
            continue
        start, (prefix, fence, language) = number, opened.groups()
        while number < len(lines) and not lines[number].removeprefix(prefix).strip().startswith(fence):
            number += 1
        if language.lower() in _PYTHON or not language:
            block = [line.removeprefix(prefix) for line in lines[start:number]]
            yield start + 1, textwrap.dedent("\n".join(block)).split("\n")
        number += 1


def _problem(code: str) -> tuple[int, str] | None:
    """Say where a piece is no Python and why."""
    try:
        compile(code, "cell", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, str(error) or "nested too deeply"
    return None


def _joined(path: Path, lines: list[str], place: Callable[[int], str], notes: list[Note]) -> Script:
    text = "\n".join(lines) + "\n"
    tree = parse(path, text, place)
    if not tree.body:
        what = "code cells" if path.suffix.lower() == ".ipynb" else "```python blocks"
        hint = "\n  ".join(note.text for note in notes) or f"wanted: {FORMS}"
        raise UsageError(f"{path} has no {what} that are Python", hint)
    return Script(path, text, tree, place, tuple(notes))
