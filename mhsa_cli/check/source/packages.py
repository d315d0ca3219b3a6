"""Import paths of a graded file: its own folder, folders above it, and the package of its relative imports."""

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
FILE_BYTES = 256 << 20  # limit for a file that a block writes: it must not fill the disk

# Packages whose name for pip differs from their name for import.
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
    """Make the empty module that a file's statements run in, listed in `sys.modules` so that its source is found."""
    name = f"mhsa_checked_{next(_numbers)}_{path.stem}".replace(".", "_")
    package = _package(path, tree)
    module = ModuleType(f"{package}.{name}" if package else name)
    module.__file__ = str(path)
    module.__package__ = package
    sys.modules[module.__name__] = module
    _extend_sys_path(path, tree)
    return module


def _extend_sys_path(path: Path, tree: ast.Module) -> None:
    """Add the file's folder, and those of the folders above it that hold something the file imports."""
    folders = [path.parent]
    for name in sorted(_imported(tree)):
        for folder in list(path.parents)[1:4]:
            if not _is_importable(name) and ((folder / name).is_dir() or (folder / f"{name}.py").is_file()):
                folders.append(folder)
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def _is_importable(name: str) -> bool:
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        return name in sys.modules or importlib.util.find_spec(name) is not None
    return False


def _imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def _package(path: Path, tree: ast.Module) -> str:
    """Make the packages that a file's relative imports need; returns the name of the innermost one, or "".

    The name is our own, so that a folder `transformers` is not taken for the library.
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
    """Make a folder a package whose __init__.py runs only when a name is imported that no file in it provides.

    An __init__.py often imports the very file that is being loaded, and would run all of it.
    """
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    package.__file__ = str(folder / "__init__.py")
    package.__package__ = name

    def missing(attribute: str) -> object:
        is_file = (folder / f"{attribute}.py").is_file() or (folder / attribute).is_dir()
        if not is_file and not attribute.startswith("__") and vars(package).pop("__getattr__", None):
            with contextlib.suppress(Exception, SystemExit):  # what it defines before failing is still of use
                SourceFileLoader(name, str(folder / "__init__.py")).exec_module(package)
            if attribute in vars(package):
                return vars(package)[attribute]
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    vars(package)["__getattr__"] = missing
    sys.modules[name] = package


def error_text(error: BaseException) -> str:
    """Write an error as its type and message, with the user's module names in place of ours."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"output of more than {FILE_BYTES >> 20} MB, printed or written"
    message = re.sub(r"\bmhsa_checked_\d+(\w*)(\.(?=\w))?", lambda m: "" if m[2] else m[1].strip("_"), str(error))
    return f"{type(error).__name__}: {message}".strip(": ")


def error_line(error: BaseException) -> str:
    """First line of an error of the user's code."""
    return (error_text(error).splitlines() or [type(error).__name__])[0]


def install_hint(error: BaseException) -> str:
    """Command that installs a missing package; "" for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.startswith("mhsa_checked_"):
        return ""
    top = error.name.split(".")[0]
    return f"pip install {INSTALLED_AS.get(top, top)}" if top not in sys.modules else ""
