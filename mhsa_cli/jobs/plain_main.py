"""Start processes that do not run the program again that starts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest import mock


@contextmanager
def plain_main() -> Iterator[None]:
    """Hide the script that runs: a new process would run it too, before its own work.

    A script without `if __name__ == "__main__"` can then start processes, and a notebook as well.
    """
    with mock.patch.dict(sys.modules, {"__main__": ModuleType("__main__")}):
        yield
