"""Train tiny attention models, and see what each head really does.

    import mhsa_cli as mhsa

    run = mhsa.train("copy", n_heads=8)    a task or config, and settings
    run = mhsa.load("copy-h8")             a saved run; left out, the newest
    run.metrics, run.heads, run.claims     tables: curve, heads, statements
    run.attention("3 5 9 |")               maps on these tokens, or the task
    run.ablate("L0.H3,L0.H1")              the loss with heads ablated
    run.model, run.config, run.path        torch module, settings, folder

    sweep = mhsa.sweep("copy", n_heads=[2, 4], seeds=8)
    sweep.differences, sweep.trials, sweep.report; mhsa.load_sweep("name")

    mhsa.grade("my.py:MyAttention")        its faults; or a module, a class
    mhsa.tasks["copy"], mhsa.nn            a task's settings, torch modules
    mhsa.save_checkpoint, mhsa.load_checkpoint  of any module and optimizer

Tables are pandas DataFrames where pandas is installed, else lists of dicts.
`print` writes runs, sweeps and grades as text, a notebook draws them.
An error is an mhsa.MhsaError with message, hint and code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mhsa_cli.api.checkpoint import load_checkpoint as load_checkpoint
    from mhsa_cli.api.checkpoint import save_checkpoint as save_checkpoint
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

__version__ = "0.2.0"

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
    "save_checkpoint": "api.checkpoint",
    "load_checkpoint": "api.checkpoint",
    "MhsaError": "errors",
    "MhsaWarning": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "nn":
        return import_module(f"{__name__}.nn")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "nn", "__version__", "__doc__", "__name__", "__path__", "__file__"])
