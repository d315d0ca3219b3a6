"""Parts of the pages that the benchmarks print: Markdown tables, and what they were measured with."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from mhsa_cli.config.threads import cores
from mhsa_cli.core.processor import cpu_name


def heading(titles: Sequence[str]) -> str:
    """Write a table's first two lines."""
    return f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}"


def row(cells: Sequence[str]) -> str:
    """Write a line of a table."""
    return f"| {' | '.join(cells)} |"


def quartiles(values: Sequence[float]) -> str:
    """Write a median ratio with its quartiles."""
    return f"{values[1]:.2f} ({values[0]:.2f}–{values[2]:.2f})"


def versions(packages: Sequence[str]) -> str:
    """Name the versions of packages."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def vectors() -> str:
    """Name the widest vector instructions of the processor, as torch uses them."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def on_one_core(packages: Sequence[str]) -> str:
    """Pin this process, and those that it starts, to one core, where the system can; returns the page's first line."""
    available = cores()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    machine = f"{cpu_name()} ({vectors()}), {available} cores, of which one is used"
    return f"{datetime.date.today()}, {machine}; Python {platform.python_version()}, {versions(packages)}\n"
