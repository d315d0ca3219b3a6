"""Train tiny attention models in seconds, and see what each head really does. From Python:

    import mhsa_cli as mhsa

    run = mhsa.train("copy", n_heads=8)     a task or a config file, and settings; saves a run
    run = mhsa.load("copy-h8")              a saved run; left out, the newest
    run.metrics, run.heads, run.claims      tables: the curve, the heads, what is said of them
    run.attention("3 5 9 | 3")              attention maps on given tokens, or of the task
    run.ablate("L0.H3,L0.H1")               the loss with heads ablated
    run.model, run.config, run.path         the torch module, all settings, the folder

    sweep = mhsa.sweep("copy", n_heads=[2, 4], seeds=8)      mhsa.load_sweep("sweep-copy")
    sweep.differences, sweep.trials, sweep.report            what the seeds show

    mhsa.grade("my.py:MyAttention")         faults of an attention block; or a module, a class
    mhsa.tasks["copy"]                      what a task asks for, and its settings

Tables are pandas DataFrames where pandas is installed, else lists of dicts. `print` shows runs, sweeps and
grades as text, a notebook draws them. An error is an mhsa.MhsaError with message, hint, code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mhsa_cli.api.grade import grade as grade
    from mhsa_cli.api.run import Run as Run
    from mhsa_cli.api.run import load as load
    from mhsa_cli.api.sweep import Sweep as Sweep
    from mhsa_cli.api.sweep import load_sweep as load_sweep
    from mhsa_cli.api.sweep import sweep as sweep
    from mhsa_cli.api.tasks import tasks as tasks
    from mhsa_cli.api.train import train as train
    from mhsa_cli.errors import MhsaError as MhsaError
    from mhsa_cli.errors import MhsaWarning as MhsaWarning

__version__ = "0.1.0"

# Where each name lives: loaded when it is first asked for, so that `mhsa --help` stays fast.
_HOMES = {
    "train": "api.train",
    "load": "api.run",
    "Run": "api.run",
    "sweep": "api.sweep",
    "load_sweep": "api.sweep",
    "Sweep": "api.sweep",
    "grade": "api.grade",
    "tasks": "api.tasks",
    "MhsaError": "errors",
    "MhsaWarning": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__", "__doc__", "__name__", "__path__", "__file__"])
