"""The first words of a command that loads torch: importing it takes seconds, in which nothing else is seen."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

WORDS = "loading torch ..."
# These load it whatever they find; the others say so once they need it.
ALWAYS = ("train", "sweep", "bench", "trace", "generate", "evaluate")


@contextlib.contextmanager
def saying_first_words(command: str | None) -> Iterator[None]:
    """Say on a terminal that torch is being loaded, until it is there; at once for the commands that always do."""
    if "torch" in sys.modules or not _is_seen():
        yield
        return
    finder = _TorchFinder()
    sys.meta_path.insert(0, finder)
    try:
        if command in ALWAYS:
            finder.say()
        yield
    finally:
        finder.forget()


@contextlib.contextmanager
def until_done(said: bool) -> Iterator[None]:
    """Say on a terminal that torch is being loaded, by another process, until the block ends."""
    finder = _TorchFinder()
    if said and _is_seen():
        finder.say()
    try:
        yield
    finally:
        finder.forget()


def _is_seen() -> bool:
    if not sys.stderr.isatty():
        return False
    from mhsa_cli.renderers.kit.console import can_animate  # imports rich

    return can_animate(os.environ, tty=True)


class _TorchFinder(MetaPathFinder):
    """Finds torch as Python does, and says the words around its execution."""

    def __init__(self) -> None:
        self._said = False

    def say(self) -> None:
        if not self._said:
            self._said = True
            sys.stderr.write(WORDS)
            sys.stderr.flush()

    def forget(self) -> None:
        """Remove the words, and this finder."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._said:
            self._said = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        spec = PathFinder.find_spec(fullname, path, target)  # asked for also where nothing is imported
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return None
        execute = loader.exec_module

        def instead(module: ModuleType) -> None:
            del loader.exec_module
            self.say()
            try:
                execute(module)
            finally:
                self.forget()

        loader.exec_module = instead
        return spec
