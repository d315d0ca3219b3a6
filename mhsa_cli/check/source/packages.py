"""Where a file's imports look: its own folder, the folders above it, and the package that its relative imports name."""

from __future__ import annotations

import ast
import contextlib
import errno
import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from itertools import count
from pathlib import Path
from types import ModuleType

_numbers = count(1)
FILE_BYTES = 256 << 20  # one file that a graded file writes: it must not fill the disk

# Packages are installed under other names than they are imported by.
INSTALLED_AS = {
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "flash_attn": "flash-attn",
    "rotary_embedding_torch": "rotary-embedding-torch",
    "IPython": "ipython",
}


def make_module(path: Path, tree: ast.Module) -> ModuleType:
    """Make the empty module that a file's statements run in, known to `sys.modules` so that its source is found."""
    name = f"mhsa_checked_{next(_numbers)}_{path.stem}".replace(".", "_")
    package = _package(path, tree)
    module = ModuleType(f"{package}.{name}" if package else name)
    module.__file__ = str(path)
    module.__package__ = package
    sys.modules[module.__name__] = module
    _look_in(path, tree)
    return module


def _look_in(path: Path, tree: ast.Module) -> None:
    """Put the file's folder on `sys.path`, and the folders above it in which something that it imports lies."""
    folders = [path.parent]
    for name in sorted(_absolute(tree)):
        for folder in list(path.parents)[1:4]:
            if not _found(name) and ((folder / name).is_dir() or (folder / f"{name}.py").is_file()):
                folders.append(folder)
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def _found(name: str) -> bool:
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        return name in sys.modules or importlib.util.find_spec(name) is not None
    return False


def _absolute(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def _package(path: Path, tree: ast.Module) -> str:
    """Make the packages that the relative imports of a file ask for; returns the name of the innermost one, or "".

    Its name is our own, so that a folder `transformers` is not taken for the library.
    """
    dots = max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
    if not dots:
        return ""
    levels = 1
    while levels < len(path.parents) - 1 and (levels < dots or (path.parents[levels] / "__init__.py").is_file()):
        levels += 1
    name = f"mhsa_checked_{next(_numbers)}"
    for depth, folder in enumerate(reversed(path.parents[:levels])):
        if depth:
            name = f"{name}.{folder.name.replace('.', '_')}"
        _make_package(name, folder)
    return name


def _make_package(name: str, folder: Path) -> None:
    """Make a folder a package whose __init__.py runs only when something is asked for that no file beside it is.

    It often imports the very file that is loaded, with all that this would run.
    """
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    package.__file__ = str(folder / "__init__.py")
    package.__package__ = name

    def missing(wanted: str) -> object:
        beside = (folder / f"{wanted}.py").is_file() or (folder / wanted).is_dir()
        if not beside and not wanted.startswith("__") and vars(package).pop("__getattr__", None):
            with contextlib.suppress(Exception, SystemExit):  # what it makes before it fails is of use all the same
                SourceFileLoader(name, str(folder / "__init__.py")).exec_module(package)
            if wanted in vars(package):
                return vars(package)[wanted]
        raise AttributeError(f"module {name!r} has no attribute {wanted!r}")

    vars(package)["__getattr__"] = missing
    sys.modules[name] = package


def as_the_user_wrote(error: BaseException) -> str:
    """Write an error: its type and what it says, by the names of the user's file and not by ours."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"it prints or writes more than {FILE_BYTES >> 20} MB"
    said = re.sub(r"\bmhsa_checked_\d+(\w*)(\.(?=\w))?", lambda m: "" if m[2] else m[1].strip("_"), str(error))
    return f"{type(error).__name__}: {said}".strip(": ")


def way_out(error: BaseException) -> str:
    """Say how a missing package is installed; "" for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.startswith("mhsa_checked_"):
        return ""
    top = error.name.split(".")[0]
    return f"pip install {INSTALLED_AS.get(top, top)}" if top not in sys.modules else ""
