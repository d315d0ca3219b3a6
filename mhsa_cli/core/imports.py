"""A program: import libraries one after the other, and print a line of JSON for each, the fields of an `Imported`.

`mhsa doctor` starts it as a process of its own: a library that is broken may end the process that imports it. The first
line says that the program runs; what a library prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from typing import Any


def main(names: list[str]) -> None:
    """Import the modules of these names."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as lines:
        os.dup2(2, 1)
        print("started", file=lines, flush=True)
        for name in names:
            print(json.dumps(_imported(name)), file=lines, flush=True)


def _imported(name: str) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # also SystemExit: the next one is to be asked all the same
        missing = isinstance(error, ModuleNotFoundError) and error.name == name
        return {"error": f"{type(error).__name__}: {error}", "missing": missing}
    seconds = round(time.perf_counter() - start, 2)
    facts = {"seconds": seconds, **_facts()} if name == "torch" else {}
    return {"version": str(getattr(module, "__version__", "")), "facts": facts}


def _facts() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "cuda_build": torch.version.cuda,
        "hip_build": torch.version.hip,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "openmp": torch.backends.openmp.is_available(),
        "threads": torch.get_num_threads(),
        "devices": ["cpu"],
        "gpus": {},
        "wrong": {},
    }
    with contextlib.suppress(Exception):  # a driver that does not fit
        for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            about = torch.cuda.get_device_properties(number)
            found["gpus"][f"cuda:{number}"] = {"name": about.name, "memory": about.total_memory}
    found["devices"] += [*found["gpus"], *(["mps"] if torch.backends.mps.is_available() else [])]
    from mhsa_cli.core.devices import self_check

    for device in found["devices"]:
        try:
            self_check(torch.device(device))
        except Exception as error:
            found["wrong"][device] = str(error)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
