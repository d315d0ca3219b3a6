"""Somebody's own attention block, named in a config as FILE:Class: what the name says. The file is read, never run."""

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
LARGEST = 2**24  # bytes of a file that is looked into
FOR_MAPS = "for maps: return (y, weights), the weights (B, H, T, T) before dropout, and train again"
SHOWN = 5  # names that a hint lists
NAME, FILE = "own-block", "own-block-file"


class Problem(NamedTuple):
    """What is wrong with a name, and the way out: `code` is NAME, or FILE where it is what stands in its file."""

    code: str
    message: str
    hint: str | None = None


def is_file(attention: str) -> bool:
    """Tell whether model.attention names a file rather than one of the kinds that are built in."""
    return attention not in KINDS


def split(attention: str) -> tuple[str, str]:
    """Split FILE:Class; the name is empty where there is none."""
    file, _, name = attention.rpartition(":")
    if file.lower().endswith(SUFFIXES) or (file and name.isidentifier()):
        return file, name if name.isidentifier() else ""
    return attention, ""


def way(attention: str) -> str:
    """Say how a command is given leave to import a block that a run was trained with."""
    return f"to let this command import it: --attention {attention}"


def form_problem(attention: str) -> Problem | None:
    """Say what is wrong with how a block is named; the file is not looked for."""
    file, name = split(attention)
    if any(ord(char) < 32 or ord(char) == 127 for char in attention):
        return Problem(NAME, "found a control character in the path")
    if not file.lower().endswith(SUFFIXES):
        hint = f"files may end in {', '.join(SUFFIXES)}"
        return Problem(NAME, f"found `{clip(attention)}`, wanted FILE.py:Class", hint)
    if not name:
        there = _names(Path(file))
        example = there[0] if there else "MyAttention"
        message = f"found `{clip(attention)}` without the name of a class in it"
        return Problem(NAME, message, f"write {clip(file)}:{example}")
    return None


def file_problem(attention: str) -> Problem | None:
    """Look for the file and the name in it, without running anything: what is missing, or None."""
    file, name = split(attention)
    path = Path(file)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "there is no such file"
            return Problem(NAME, f"found `{clip(attention)}`: {what}", "the path counts from the folder you are in")
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
        return None if known else Problem(FILE, f"{clip(file)} nowhere says `{clip(name)}`")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        hint = f"python -m py_compile {clip(file)}"
        return Problem(FILE, f"{clip(file)} is not Python that this version reads{line}", hint)
    if name in _bound(tree):
        return None
    there = _classes(tree)
    hint = f"classes in it: {', '.join(map(clip, there[:SHOWN]))}" if there else "it defines no class"
    return Problem(FILE, f"{clip(file)} has no `{clip(name)}`", hint)


def _names(path: Path) -> list[str]:
    try:
        return _classes(ast.parse(path.read_bytes())) if path.stat().st_size <= LARGEST else []
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def _classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _bound(tree: ast.Module) -> set[str]:
    """List what a module's statements give a name to, those inside functions and classes left out."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return found


def refuse_block(attention: str, what: str, does: str = "looks inside our attention") -> None:
    """Refuse to look inside a block that is not ours. Raises: UsageError."""
    if is_file(attention):
        said = f"{what} {does}; model.attention is {escape(attention)}"
        raise UsageError(said, f"what is inside yours: mhsa check {escape(attention)}")


def find_block(own: str, given: Sequence[str], who: str) -> str:
    """Find among several --attention the one that names a run's block again. Raises: UsageError if there is none."""
    file, name = split(own)
    fits = [one for one in given if split(one)[1] == name]
    exact = [one for one in fits if Path(split(one)[0]).name == Path(file).name] or fits
    if not exact:
        raise UsageError(f"{who} was trained with {escape(own)}, which is never imported by itself", way(escape(own)))
    return exact[0]
