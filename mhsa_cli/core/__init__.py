"""The mathematics: the only folder that imports torch. It never prints and never touches a run directory."""

import importlib.util
import mmap
import os
import sys
from pathlib import Path

LEAST = 180_000_000  # bytes that torch takes of its own when it is loaded, whatever is done with it


def _make_sure_of_memory() -> None:
    """Refuse where torch cannot be loaded: half-way, its libraries would abort the process or wait for ever.

    Raises: MemoryError.
    """
    found = None if sys.platform == "win32" or "torch" in sys.modules else importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return
    libraries = sum(path.stat().st_size for path in Path(found.origin).parent.glob("lib/libtorch_cpu.*"))
    for size, access in ((LEAST, mmap.PROT_READ | mmap.PROT_WRITE), (libraries + LEAST, mmap.PROT_READ)):
        try:
            mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, access).close()
        except OSError:
            raise MemoryError(f"loading torch alone takes {size // 10**6} MB") from None


_make_sure_of_memory()

# MKL's bits otherwise depend on where a matrix lies in memory, and so on a model's slot in a stack.
os.environ.setdefault("MKL_CBWR", "AUTO")
