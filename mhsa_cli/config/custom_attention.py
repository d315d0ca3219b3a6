"""Custom attention, named in a config as FILE:Class: the name is checked, the file read but never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mhsa_cli.config.problems import clip
from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape

KINDS = ("softmax", "linear", "uniform")
SUFFIXES = (".py", ".ipynb", ".md")
LARGEST = 2**24  # bytes of a file that is read
FOR_MAPS = "for maps: return (y, weights), the weights (B, H, T, T) before dropout, and train again"
SHOWN = 5  # names that a hint lists
NAME, FILE = "custom-attention", "custom-attention-file"


class Problem(NamedTuple):
    """A problem of a name, with `code` NAME, or of the content of its file, with FILE."""

    code: str
    message: str
    hint: str | None = None


def is_file(attention: str) -> bool:
    """Return whether model.attention names a file, not a built-in kind."""
    return attention not in KINDS


def split(attention: str) -> tuple[str, str]:
    """Split FILE:Class; the name is empty if there is none."""
    file, _, name = attention.rpartition(":")
    if file.lower().endswith(SUFFIXES) or (file and name.isidentifier()):
        return file, name if name.isidentifier() else ""
    return attention, ""


def way(attention: str) -> str:
    """Return the hint that lets a command import the custom attention of a run."""
    return f"to let this command import it: --attention {attention}"


def form_problem(attention: str) -> Problem | None:
    """Check the form of a name; the file is not read."""
    file, name = split(attention)
    if any(ord(char) < 32 or ord(char) == 127 for char in attention):
        return Problem(NAME, "found a control character in the path")
    if not file.lower().endswith(SUFFIXES):
        hint = f"files may end in {', '.join(SUFFIXES)}"
        return Problem(NAME, f"found `{clip(attention)}`, wanted FILE.py:Class", hint)
    if not name:
        classes = _classes_in(Path(file))
        message = f"found `{clip(attention)}` without the name of a class in it"
        return Problem(NAME, message, f"write {clip(file)}:{classes[0] if classes else 'MyAttention'}")
    return None


def file_problem(attention: str) -> Problem | None:
    """Check that the file exists and has the name, without running it."""
    file, name = split(attention)
    path = Path(file)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "there is no such file"
            return Problem(NAME, f"found `{clip(attention)}`: {what}", "the path is relative to the working directory")
        if path.stat().st_size > LARGEST:
            hint = "name the file that holds the class alone"
            return Problem(FILE, f"{clip(file)} has more than {LARGEST:,} bytes", hint)
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        return Problem(FILE, f"{clip(file)} cannot be read: {error.strerror}")
    except ValueError:  # a null byte in the path, or bytes that are no UTF-8
        return Problem(FILE, f"{clip(file)} is not a text in UTF-8")
    if path.suffix.lower() != ".py":
        known = re.search(rf"\b{re.escape(name)}\b", text) is not None
        return None if known else Problem(FILE, f"{clip(file)} does not contain `{clip(name)}`")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        hint = f"python -m py_compile {clip(file)}"
        return Problem(FILE, f"{clip(file)} is not Python that this version reads{line}", hint)
    if name in _bound(tree):
        return None
    classes = _classes(tree)
    hint = f"classes in it: {', '.join(map(clip, classes[:SHOWN]))}" if classes else "it defines no class"
    return Problem(FILE, f"{clip(file)} has no `{clip(name)}`", hint)


def _classes_in(path: Path) -> list[str]:
    try:
        return _classes(ast.parse(path.read_bytes())) if path.stat().st_size <= LARGEST else []
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def _classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _bound(tree: ast.Module) -> set[str]:
    """List the names that a module binds, not those inside its functions and classes."""
    found: set[str] = set()
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        nodes += ast.iter_child_nodes(node)
    return found


def refuse_block(attention: str, what: str, does: str = "needs the built-in attention") -> None:
    """Refuse custom attention where its inside is needed. Raises: UsageError."""
    if is_file(attention):
        message = f"{what} {does}; model.attention is {escape(attention)}"
        raise UsageError(message, f"to test your attention: mhsa check {escape(attention)}")


def find_block(attention: str, options: Sequence[str], who: str) -> str:
    """Find the option --attention that names a run's custom attention. Raises: UsageError if there is none."""
    file, name = split(attention)
    same_class = [option for option in options if split(option)[1] == name]
    exact = [option for option in same_class if Path(split(option)[0]).name == Path(file).name] or same_class
    if not exact:
        shown = escape(attention)
        raise UsageError(f"{who} was trained with {shown}, which is not imported without permission", way(shown))
    return exact[0]
