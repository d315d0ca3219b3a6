"""What a config names as FILE:Name, code of the user's own: the name is checked, the file read but never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from mhsa_cli.config.problems import clip

LARGEST = 2**24  # bytes of a file that is read
SHOWN = 5  # names that a hint lists
SUFFIXES = (".py", ".ipynb", ".md")


class OwnKind(NamedTuple):
    """A kind of code: the code of its problems, what NAME is, an example of one, and the files that may hold it."""

    code: str
    what: str
    example: str
    suffixes: tuple[str, ...]
    functions: bool  # whether a function will do as well as a class

    @property
    def file_code(self) -> str:
        """The code of a problem of the file's content."""
        return f"{self.code}-file"


class Problem(NamedTuple):
    """A problem of a name, or of its file: the code tells which."""

    code: str
    message: str
    hint: str | None = None


class OwnCode(NamedTuple):
    """The user's code that a command may run, as FILE:Name: a run's custom attention and own task, and own scores."""

    attention: str | None = None
    task: str | None = None
    scores: Sequence[str] = ()


class OwnCodes(NamedTuple):
    """The same of several runs."""

    attentions: Sequence[str] = ()
    tasks: Sequence[str] = ()
    scores: Sequence[str] = ()


def split(text: str) -> tuple[str, str]:
    """Split FILE:Name; the name is empty if there is none."""
    file, _, name = text.rpartition(":")
    if file.lower().endswith(SUFFIXES) or (file and name.isidentifier()):
        return file, name if name.isidentifier() else ""
    return text, ""


def file_digest(text: str) -> str:
    """Return the sha256 of the file of FILE:Name."""
    return sha256(Path(split(text)[0]).read_bytes()).hexdigest()


def pick(text: str, given: Sequence[str]) -> str | None:
    """Pick from options the one that names the same Name, in a file of the same name if there is one."""
    same = [one for one in given if split(one)[1] == split(text)[1]]
    exact = [one for one in same if Path(split(one)[0]).name == Path(split(text)[0]).name] or same
    return exact[0] if exact else None


def form_problem(text: str, kind: OwnKind) -> Problem | None:
    """Check the form of a name; the file is not run."""
    file, name = split(text)
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        return Problem(kind.code, "found a control character in the path")
    if not file.lower().endswith(kind.suffixes):
        hint = f"files may end in {', '.join(kind.suffixes)}"
        return Problem(kind.code, f"found `{clip(text)}`, wanted FILE.py:{kind.what}", hint)
    if not name:
        names = _names_in(Path(file), kind)
        message = f"found `{clip(text)}` without the name of a {kind.what.lower()} in it"
        return Problem(kind.code, message, f"write {clip(file)}:{names[0] if names else kind.example}")
    return None


def file_problem(text: str, kind: OwnKind) -> Problem | None:
    """Check that the file exists and has the name, without running it."""
    file, name = split(text)
    path = Path(file)
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "there is no such file"
            hint = "the path is relative to the working directory"
            return Problem(kind.code, f"found `{clip(text)}`: {what}", hint)
        if path.stat().st_size > LARGEST:
            hint = f"name the file that holds the {kind.what.lower()} alone"
            return Problem(kind.file_code, f"{clip(file)} has more than {LARGEST:,} bytes", hint)
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        return Problem(kind.file_code, f"{clip(file)} cannot be read: {error.strerror}")
    except ValueError:  # a null byte in the path, or bytes that are no UTF-8
        return Problem(kind.file_code, f"{clip(file)} is not a text in UTF-8")
    if path.suffix.lower() != ".py":
        known = re.search(rf"\b{re.escape(name)}\b", content) is not None
        return None if known else Problem(kind.file_code, f"{clip(file)} does not contain `{clip(name)}`")
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        hint = f"python -m py_compile {clip(file)}"
        return Problem(kind.file_code, f"{clip(file)} is not Python that this version reads{line}", hint)
    if name in _bound(tree):
        return None
    names = _names(tree, kind)
    plural = "functions and classes" if kind.functions else "classes"
    hint = f"{plural} in it: {', '.join(map(clip, names[:SHOWN]))}" if names else f"it defines no {plural}"
    return Problem(kind.file_code, f"{clip(file)} has no `{clip(name)}`", hint)


def definition(text: str) -> ast.ClassDef | ast.FunctionDef | None:
    """Return the syntax tree of what FILE.py:Name names; None if the file does not define it itself."""
    file, name = split(text)
    try:
        found = [node for node in ast.parse(Path(file).read_bytes()).body if getattr(node, "name", "") == name]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return found[-1] if found and isinstance(found[-1], ast.ClassDef | ast.FunctionDef) else None


def _names_in(path: Path, kind: OwnKind) -> list[str]:
    try:
        return _names(ast.parse(path.read_bytes()), kind) if path.stat().st_size <= LARGEST else []
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def _names(tree: ast.Module, kind: OwnKind) -> list[str]:
    kinds = (ast.ClassDef, ast.FunctionDef) if kind.functions else (ast.ClassDef,)
    return [node.name for node in tree.body if isinstance(node, kinds)]


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
