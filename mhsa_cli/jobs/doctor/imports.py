"""The libraries imported in a process of their own, and what torch says of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mhsa_cli.records.doctor import Check
from mhsa_cli.runs.disk import folder_is_gone
from mhsa_cli.text import byte_size

PROGRAM = "mhsa_cli.core.imports"
LIMIT = 180.0  # seconds
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
)
KERNELS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
GPUS = ("CUDA_VISIBLE_DEVICES",)
TORCH = "torch"
DRIVER = "/proc/driver/nvidia/version"


@dataclass(slots=True)
class Imports:
    """What came of the imports: versions and seconds by module, errors by module, and torch's facts."""

    versions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    crashed: dict[str, str] = field(default_factory=dict)
    torch: dict[str, Any] = field(default_factory=dict)


def import_all(modules: Sequence[str]) -> Imports:
    """Import modules in other processes; one that ends its process is recorded, and the rest go on without it."""
    found, left = Imports(), list(modules)
    while left:
        begun, end = _import(left, found)
        if end is None:
            break  # every one was imported, or has said why not
        found.crashed[begun or TORCH] = end
        left = left[left.index(begun) + 1 :] if begun else []
    return found


def _import(modules: Sequence[str], found: Imports) -> tuple[str | None, str | None]:
    """Import modules in one process; return the last that was begun, and how the process ended unless well."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", PROGRAM, *modules]
    # -P: not what lies in the working folder, unless this process has it in its path, too.
    command[1:1] = [] if "" in sys.path else ["-P"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
            env=environ,
            cwd=os.sep if folder_is_gone() else None,
        )
        out, end = done.stdout, _how_it_ended(done)
    except subprocess.TimeoutExpired as error:
        out, end = error.stdout or b"", f"it was not done after {LIMIT:g} s"
    except (OSError, ValueError, TypeError) as error:  # no Python of that name, or no room for a process
        return None, f"Python did not start: {error}"
    begun = None
    for line in out.decode("utf-8", "replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:  # a library prints something
            continue
        begun = record.get("begun", begun) if isinstance(record, dict) else begun
        if isinstance(record, dict):
            _keep(record, found)
    return begun, end


def _how_it_ended(done: subprocess.CompletedProcess[bytes]) -> str | None:
    if done.returncode == 0:
        return None
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return f"it ends Python with {ended}" + (f": {last}" if last else "")


def _keep(record: Mapping[str, Any], found: Imports) -> None:
    if "imported" in record:
        found.versions[record["imported"]] = record["version"]
        found.seconds[record["imported"]] = record["seconds"]
    elif "failed" in record:
        found.failed[record["failed"]] = record["error"]
        if record["missing"]:
            found.missing.add(record["failed"])
    elif "torch" in record:
        found.torch = record["torch"]


def checks(found: Imports, environ: Mapping[str, str]) -> Iterator[Check]:
    """Examine torch, its kernels and threads, and the devices; the latter only where torch can be imported."""
    if not found.torch:  # or the process ended when torch was asked
        yield _broken_torch(found)
        return
    facts = found.torch
    version, seconds = found.versions[TORCH], found.seconds[TORCH]
    build = facts.get("cuda_build") or facts.get("hip_build")
    kind = ("CUDA " if facts.get("cuda_build") else "ROCm ") + build if build else "CPU"
    value = f"{version}, build for {kind}, imported in {seconds:.1f} s"
    yield Check("torch", "torch", value, {"version": version, "build": kind, "seconds": seconds})
    yield _kernels(facts, environ)
    yield _threads(facts, environ)
    yield _devices(facts, environ, bool(build))


def _broken_torch(found: Imports) -> Check:
    if TORCH in found.missing:
        return Check("torch", "torch", "not installed", {}, "torch-missing")
    if TORCH in found.failed:
        return Check("torch", "torch", found.failed[TORCH], {"error": found.failed[TORCH]}, "torch-failed")
    end = found.crashed.get(TORCH, "it was not reached")
    return Check("torch", "torch", end, {"error": end}, "torch-crashed")


def _set(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in names if environ.get(name)}


def _with(value: str, chosen: Mapping[str, str]) -> str:
    return ", ".join([value, *(f"{name}={text}" for name, text in chosen.items())])


def _kernels(facts: Mapping[str, Any], environ: Mapping[str, str]) -> Check:
    chosen = _set(KERNELS, environ)
    parts = [facts["capability"], *(["MKL"] if facts["mkl"] else []), *(["OpenMP"] if facts["openmp"] else [])]
    known = {key: facts[key] for key in ("capability", "mkl", "openmp")}
    fault = "kernels-chosen" if "ATEN_CPU_CAPABILITY" in chosen else None
    if facts["capability"] in ("DEFAULT", "NO AVX"):
        fault = fault or "no-vectors"
    return Check("kernels", "torch", _with(", ".join(parts), chosen), {**known, **chosen}, fault)


def _threads(facts: Mapping[str, Any], environ: Mapping[str, str]) -> Check:
    chosen = _set(THREADS, environ)
    value = _with(f"{facts['threads']} in torch; mhsa sets train.threads", chosen)
    return Check("threads", "torch", value, {"torch": facts["threads"], **chosen})


def _devices(facts: Mapping[str, Any], environ: Mapping[str, str], built: bool) -> Check:
    chosen, gpus, wrong = _set(GPUS, environ), facts["gpus"], facts["wrong"]
    names = [f"{d} ({gpus[d]['name']}, {byte_size(gpus[d]['memory'])})" if d in gpus else d for d in facts["devices"]]
    driver = Path(DRIVER).exists()
    known = {"devices": facts["devices"], "gpus": gpus, "driver": driver, **chosen}
    if wrong:
        value = "; ".join(f"{device}: {why}" for device, why in wrong.items())
        return Check("devices", "torch", value, {**known, "wrong": wrong}, "attention-wrong")
    fault = ("gpu-hidden" if built else "gpu-unused") if driver and not gpus else None
    return Check("devices", "torch", _with(", ".join(names), chosen), known, fault)
