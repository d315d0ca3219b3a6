"""The package, Python, and the machine."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from mhsa_cli import __version__
from mhsa_cli.config.threads import cores
from mhsa_cli.records.doctor import Check
from mhsa_cli.text import byte_size, plural

LEAST_MEMORY = 2**30  # bytes
CGROUP = "/sys/fs/cgroup"


def checks() -> Iterator[Check]:
    """Examine them one by one."""
    package = Path(__file__).parents[2]
    yield Check("mhsa", "environment", f"{__version__} in {package}", {"version": __version__, "in": str(package)})
    yield _python()
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    name = ""
    with contextlib.suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    facts = {"name": name or None, "kernel": system, "platform": platform.platform()}
    yield Check("system", "environment", f"{name}, {system}" if name else system, facts)
    yield _cores()
    yield _memory()
    from mhsa_cli.core.processor import cpu_name  # `core` refuses where there is too little memory for torch

    yield Check("processor", "environment", cpu_name(), {"name": cpu_name()})


def _python() -> Check:
    version, where = platform.python_version(), sys.executable or "an unknown place"
    own = sys.prefix != sys.base_prefix
    facts = {"version": version, "in": where, "virtual_environment": own, "kind": platform.python_implementation()}
    return Check("python", "environment", f"{version} in {where}", facts)


def _quota() -> float | None:
    """Return how many cores' time a container allows; None where there is no limit."""
    with contextlib.suppress(OSError, ValueError):
        time, period = map(int, Path(CGROUP, "cpu.max").read_text().split())  # `max` is no number
        return time / period
    return None


def _cores() -> Check:
    machine = os.cpu_count() or 1
    allowed, limit = cores(), _quota()
    value = f"{allowed} of {machine}" if allowed != machine else plural(machine, "core")
    facts = {"machine": machine, "allowed": allowed, "quota": limit}
    if limit is None or limit >= allowed:
        return Check("cores", "environment", value, facts)
    return Check("cores", "environment", f"{value}, with the time of {limit:g}", facts, "quota")


def _memory() -> Check:
    import psutil

    from mhsa_cli.jobs.sweep.capacity import free_memory

    total, free = psutil.virtual_memory().total, free_memory()
    facts = {"total": total, "free": free}
    if free is None:
        return Check("memory", "environment", byte_size(total), facts)
    value = f"{byte_size(free)} free of {byte_size(total)}"
    low = free < LEAST_MEMORY
    return Check("memory", "environment", value, facts, "low-memory" if low else None)
