"""What the imports of `mhsa doctor` find, as if they had been made: they take seconds, and have tests of their own."""

from __future__ import annotations

from mhsa_cli.jobs.doctor.imports import Imports
from mhsa_cli.jobs.doctor.libraries import MODULES

FACTS = {"cuda_build": None, "hip_build": None, "capability": "AVX2", "mkl": True, "openmp": True, "threads": 3}
FACTS |= {"devices": ["cpu"], "gpus": {}, "wrong": {}}


def good_imports() -> Imports:
    """Every library imported, and torch as it is on a machine without a GPU."""
    versions = dict.fromkeys(MODULES, "9.9")
    return Imports(versions, dict.fromkeys(versions, 0.5), torch=dict(FACTS))
