"""The checks of `mhsa doctor` as a table: what was found, and the way out below it."""

from __future__ import annotations

from mhsa_cli.records.doctor import Check, Examination
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines

_AGAIN = "install mhsa-cli and its libraries again: pip install --force-reinstall mhsa-cli"
_ELSEWHERE = "keep runs elsewhere: --runs DIR, or MHSA_RUNS=DIR"
WAYS_OUT = {
    "unknown": "this could not be examined",
    "quota": "more threads than this make training slower: train.threads",
    "low-memory": "lower train.batch_size, train.eval_sequences or model.d_model; mhsa sweep --jobs 1",
    "torch-missing": "pip install torch",
    "torch-failed": "install it again, or another build of torch: pip install --force-reinstall torch",
    "kernels-chosen": "other kernels round differently: unset ATEN_CPU_CAPABILITY, unless it is set on purpose",
    "no-vectors": "this processor is slow for torch: expect several times the time in the docs",
    "gpu-unused": "this torch cannot use the GPU that is here: a build of torch for CUDA can",
    "gpu-hidden": "torch does not see the GPU: CUDA_VISIBLE_DEVICES, or a driver that is older than the build of torch",
    "attention-wrong": "use train.device=cpu, or another version of torch",
    "no-metadata": "pip install mhsa-cli: without it versions of libraries cannot be compared",
    "library-missing": _AGAIN,
    "library-failed": _AGAIN,
    "library-old": "pip install --upgrade, followed by the name of the library",
    "narrow": "pictures are smaller, and tables hide columns: 80 columns and 24 rows show all",
    "no-colours": "maps are drawn without colours: set TERM=xterm-256color if this terminal has colours",
    "few-colours": "maps are drawn without colours: set COLORTERM=truecolor if this terminal has more colours",
    "plain-characters": "curves and maps are drawn coarsely: a UTF-8 locale has finer characters (LC_ALL=C.UTF-8)",
    "low-space": f"free some space, or {_ELSEWHERE}",
    "no-space": f"free some space, or {_ELSEWHERE}",
    "no-locks": f"two processes could write one run; {_ELSEWHERE}",
    "no-recipes": _AGAIN,
    "refused": _ELSEWHERE,
}


def way_out(check: Check) -> str:
    """Return what to do about a check; nothing if it is ok."""
    return "" if check.fault is None else check.way_out or WAYS_OUT[check.fault]


def doctor_table(examination: Examination, surface: Surface, every: bool) -> Lines:
    """Draw a row for each check, minor ones only with `every` or where they are not ok."""
    columns: list[Column[Check]] = [
        Column("check", lambda c: c.id, whole=not surface.bounded),
        Column("state", lambda c: "PROBLEM" if c.state == "problem" else c.state),
        Column("found", lambda c: c.value, wraps=True),
    ]
    rows = [check for check in examination.checks if every or check.state != "ok" or not check.minor]
    return table(columns, rows, surface, under=way_out)
