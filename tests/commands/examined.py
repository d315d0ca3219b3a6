"""What the imports of `mhsa doctor` find, as if they had been made: they take seconds, and have tests of their own."""

from __future__ import annotations

from mhsa_cli.jobs.doctor.imports import TORCH, Imported
from mhsa_cli.jobs.doctor.libraries import MODULES

FACTS = {"cuda_build": None, "hip_build": None, "capability": "AVX2", "mkl": True, "openmp": True, "threads": 3}
FACTS |= {"seconds": 0.5, "devices": ["cpu"], "gpus": {}, "wrong": {}}


def good_imports() -> dict[str, Imported]:
    """Every library imported, and torch as it is on a machine without a GPU."""
    return {**dict.fromkeys(MODULES, Imported("9.9")), TORCH: Imported("9.9", dict(FACTS))}
