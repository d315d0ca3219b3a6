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

from mhsa_cli.jobs.doctor.variables import chosen_of, with_chosen
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


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import: the version, of torch also its facts; or an error, also where it ended its process."""

    version: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    missing: bool = False


def import_all(modules: Sequence[str]) -> dict[str, Imported]:
    """Import modules in other processes; one that ends its process has an error, and the rest go on without it."""
    found: dict[str, Imported] = {}
    while left := modules[len(found) :]:
        lines, end = _run(left)
        if not lines:  # the program itself did not start
            return {**found, TORCH: Imported(error=end)}
        done = [Imported(**json.loads(line)) for line in lines[1:]]
        found.update(zip(left, [*done, Imported(error=end)], strict=False))
    return found


def _run(modules: Sequence[str]) -> tuple[list[str], str]:
    """Run the program; return its lines, and how it ended."""
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
    except (OSError, TypeError) as error:  # no Python of that name, or no room for a process
        out, end = b"", f"Python did not start: {error}"
    return out.decode("ascii").splitlines(), end


def _how_it_ended(done: subprocess.CompletedProcess[bytes]) -> str:
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return f"it ends Python with {ended}" + (f": {last}" if last else "")


def checks(found: Mapping[str, Imported], environ: Mapping[str, str]) -> Iterator[Check]:
    """Examine torch, its kernels and threads, and the devices; the latter only where torch can be imported."""
    torch = found[TORCH]
    if torch.missing:
        yield Check("torch", "torch", "not installed", {}, "torch-missing")
        return
    if torch.error is not None:
        yield Check("torch", "torch", torch.error, {"error": torch.error}, "torch-failed")
        return
    facts = torch.facts
    build = facts["cuda_build"] or facts["hip_build"]
    kind = ("CUDA " if facts["cuda_build"] else "ROCm ") + build if build else "CPU"
    value = f"{torch.version}, build for {kind}, imported in {facts['seconds']:.1f} s"
    yield Check("torch", "torch", value, {"version": torch.version, "build": kind, "seconds": facts["seconds"]})
    yield _kernels(facts, environ)
    yield _threads(facts, environ)
    yield _devices(facts, environ, bool(build))


def _kernels(facts: Mapping[str, Any], environ: Mapping[str, str]) -> Check:
    chosen = chosen_of(KERNELS, environ)
    parts = [facts["capability"], *(["MKL"] if facts["mkl"] else []), *(["OpenMP"] if facts["openmp"] else [])]
    known = {key: facts[key] for key in ("capability", "mkl", "openmp")}
    fault = "no-vectors" if facts["capability"] in ("DEFAULT", "NO AVX") else None
    fault = "kernels-chosen" if "ATEN_CPU_CAPABILITY" in chosen else fault
    return Check("kernels", "torch", with_chosen(", ".join(parts), chosen), {**known, **chosen}, fault)


def _threads(facts: Mapping[str, Any], environ: Mapping[str, str]) -> Check:
    chosen = chosen_of(THREADS, environ)
    value = with_chosen(f"{facts['threads']} in torch; mhsa sets train.threads", chosen)
    return Check("threads", "torch", value, {"torch": facts["threads"], **chosen})


def _devices(facts: Mapping[str, Any], environ: Mapping[str, str], built: bool) -> Check:
    chosen, gpus, wrong = chosen_of(GPUS, environ), facts["gpus"], facts["wrong"]
    names = [f"{d} ({gpus[d]['name']}, {byte_size(gpus[d]['memory'])})" if d in gpus else d for d in facts["devices"]]
    driver = Path(DRIVER).exists()
    known = {"devices": facts["devices"], "gpus": gpus, "driver": driver, **chosen}
    if wrong:
        value = "; ".join(f"{device}: {why}" for device, why in wrong.items())
        return Check("devices", "torch", value, {**known, "wrong": wrong}, "attention-wrong")
    fault = ("gpu-hidden" if built else "gpu-unused") if driver and not gpus else None
    return Check("devices", "torch", with_chosen(", ".join(names), chosen), known, fault)
