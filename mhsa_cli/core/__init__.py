"""The mathematics: it never prints and never touches a run directory. Only this room and `check` import torch."""

import importlib.util
import mmap
import os
import sys
from pathlib import Path

# Bytes that a library takes when it is loaded, whatever is done with it: of its own, and of its file beside them.
LEAST = {"torch": 180_000_000, "scipy": 70_000_000}
FILES = {"torch": "lib/libtorch_cpu.*", "scipy": "../scipy.libs/*openblas*"}


def make_sure_of_memory(library: str) -> None:
    """Refuse where a library cannot be loaded: half-way it would abort the process, or wait for ever.

    Raises: MemoryError.
    """
    found = None if sys.platform == "win32" or library in sys.modules else importlib.util.find_spec(library)
    if found is None or found.origin is None:
        return
    own, file = LEAST[library], sum(path.stat().st_size for path in Path(found.origin).parent.glob(FILES[library]))
    for size, access in ((own, mmap.PROT_READ | mmap.PROT_WRITE), (own + file, mmap.PROT_READ)):
        try:
            mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, access).close()
        except OSError:
            raise MemoryError(f"loading {library} alone takes {size // 10**6} MB") from None


make_sure_of_memory("torch")

# MKL's bits otherwise depend on where a matrix lies in memory, and so on a model's slot in a stack.
os.environ.setdefault("MKL_CBWR", "AUTO")
