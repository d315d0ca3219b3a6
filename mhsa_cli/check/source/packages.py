"""Imports of a graded file: from its own folder, from folders above it, and from the package that it belongs to."""

from __future__ import annotations

import ast
import contextlib
import errno
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import count
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest import mock

from mhsa_cli.check.source.trace import is_users

_numbers = count(1)
FILE_BYTES = 256 << 20  # limit for a file that a block writes: it must not fill the disk

# Attributes of a package that the import system asks for, unlike __version__ and __all__.
ASKED_BY_IMPORTS = ("__path__", "__spec__", "__file__", "__loader__", "__cached__")

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
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return module


@contextlib.contextmanager
def own_packages(path: Path) -> Iterator[None]:
    """Find what is installed nowhere in the folders above a file, and let the user's own distribution have a version.

    A folder that is found stays on `sys.path`, for imports inside a call.
    """
    own = _OwnPackages()
    above, version = _FoldersAbove(path, own), metadata.version

    def version_of(name: str) -> str:
        try:
            return version(name)
        except metadata.PackageNotFoundError:
            if name.startswith("mhsa_checked_") or is_own(path, name):
                return "0"
            raise

    sys.meta_path.insert(0, own)
    sys.meta_path.append(above)
    try:
        with mock.patch.object(metadata, "version", version_of):
            yield
    finally:
        sys.meta_path.remove(own)
        sys.meta_path.remove(above)


class _OwnPackages(MetaPathFinder):
    """Finds the packages inside the user's own ones; their `__init__.py` runs only when it has to."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}  # top-level name -> folder

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        top, *inner = fullname.split(".")
        folder = self.folders[top].joinpath(*inner) if top in self.folders else None
        if folder is None or not (folder / "__init__.py").is_file():
            return None
        spec = ModuleSpec(fullname, _LazyInit(folder), origin=str(folder / "__init__.py"), is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


class _FoldersAbove(MetaPathFinder):
    """Finds a module that nothing else finds in the nearest folder above a file that holds it."""

    def __init__(self, path: Path, own: _OwnPackages) -> None:
        self.path, self.own = path, own

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        folder = None if "." in fullname or not _asked_by_user() else _holder(self.path, fullname)
        if folder is None:
            return None
        sys.path.append(str(folder))
        self.own.folders[fullname] = folder / fullname
        return self.own.find_spec(fullname, path) or PathFinder.find_spec(fullname, [str(folder)])


def _asked_by_user() -> bool:
    """Whether code of the user's imports, and not that of a library, which may do without a module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and is_users(frame.f_code.co_filename)


class _LazyInit(Loader):
    """Makes a package by `_lazy_package`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _lazy_package(spec.name, self.folder)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing yet."""


def _holder(path: Path, name: str) -> Path | None:
    """The nearest folder above a file that holds a module or a package of the user's, packages without __init__ too."""
    for folder in path.parents[:-1]:
        package = folder / name
        if (folder / f"{name}.py").is_file() or (package / "__init__.py").is_file() or package in path.parents:
            return folder
        if package.is_dir() and any(next(package.glob(pattern), None) for pattern in ("*.py", "*/*.py")):
            return folder
    return None


def is_own(path: Path, name: str) -> bool:
    """Whether a name is that of a folder above a file, of a module or package in one, or of its distribution."""
    known = {*(folder.name for folder in path.parents[:-1]), _distribution(path)}
    return _holder(path, name) is not None or _plain(name) in map(_plain, known)


def _plain(name: str) -> str:
    """A name without the differences that pip does not know."""
    return re.sub(r"[-_.]+", "_", name).lower()


def _distribution(path: Path) -> str:
    """Name in the nearest pyproject.toml above a file, or ""."""
    file = next((file for folder in path.parents if (file := folder / "pyproject.toml").is_file()), None)
    with contextlib.suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return str(tomllib.loads(file.read_text("utf-8"))["project"]["name"]) if file else ""
    return ""


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
        sys.modules[name] = _lazy_package(name, folder)
    return name


def _lazy_package(name: str, folder: Path) -> ModuleType:
    """Make a folder a package whose __init__.py runs only when a name is imported that no file in it provides.

    An __init__.py often imports the very file that is being loaded, and would run all of it.
    """
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    package.__file__ = str(folder / "__init__.py")
    package.__package__ = name

    def missing(attribute: str) -> object:
        is_file = (folder / f"{attribute}.py").is_file() or (folder / attribute).is_dir()
        if not is_file and attribute not in ASKED_BY_IMPORTS and vars(package).pop("__getattr__", None):
            with contextlib.suppress(Exception, SystemExit):  # what it defines before failing is still of use
                SourceFileLoader(name, str(folder / "__init__.py")).exec_module(package)
            if attribute in vars(package):
                return vars(package)[attribute]
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    vars(package)["__getattr__"] = missing
    return package


def error_text(error: BaseException) -> str:
    """Write an error as its type and message, with the user's module names in place of ours."""
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return f"output of more than {FILE_BYTES >> 20} MB, printed or written"
    message = re.sub(r"\bmhsa_checked_\d+(\w*)(\.(?=\w))?", lambda m: "" if m[2] else m[1].strip("_"), str(error))
    return f"{type(error).__name__}: {message}".strip(": ")


def error_line(error: BaseException) -> str:
    """First line of an error of the user's code."""
    return (error_text(error).splitlines() or [type(error).__name__])[0]


def install_hint(error: BaseException, path: Path) -> str:
    """Command that installs a package that a file misses; "" for any other error, and for what is the user's own."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or error.name.startswith("mhsa_checked_"):
        return ""
    top = error.name.split(".")[0]
    if is_own(path, top):
        return ""
    return f"pip install {INSTALLED_AS.get(top, top)}" if top not in sys.modules else ""
