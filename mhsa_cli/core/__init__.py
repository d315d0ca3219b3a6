"""Models, tasks, training and measurements. No printing, no run folders; only `core` and `check` import torch."""

import importlib.util
import mmap
import os
import sys
from pathlib import Path

# Bytes that loading a library takes: private memory, and its mapped file.
PRIVATE = {"torch": 180_000_000, "scipy": 70_000_000}
FILES = {"torch": "lib/libtorch_cpu.*", "scipy": "../scipy.libs/*openblas*"}


def make_sure_of_memory(library: str) -> None:
    """Raise MemoryError if a library does not fit into memory: loading it would abort the process, or hang."""
    found = None if sys.platform == "win32" or library in sys.modules else importlib.util.find_spec(library)
    if found is None or found.origin is None:
        return
    own, file = PRIVATE[library], sum(path.stat().st_size for path in Path(found.origin).parent.glob(FILES[library]))
    for size, access in ((own, mmap.PROT_READ | mmap.PROT_WRITE), (own + file, mmap.PROT_READ)):
        try:
            mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, access).close()
        except OSError:
            raise MemoryError(f"loading {library} alone takes {size // 10**6} MB") from None


make_sure_of_memory("torch")

# Without it the bits of MKL depend on a matrix's address, and so on a model's slot in a stack.
os.environ.setdefault("MKL_CBWR", "AUTO")
