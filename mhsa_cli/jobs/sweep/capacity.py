"""Check before training that a sweep fits into memory and onto the disk."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import psutil

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.estimate import EVALUATED, trial_disk, trial_memory
from mhsa_cli.config.schema import Config
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.messages import LOWER_MEMORY
from mhsa_cli.runs.new_folder import check_disk_space
from mhsa_cli.text import byte_size

CGROUP = "/sys/fs/cgroup"  # psutil knows nothing of a container's limit
PROCESS = 350 * 2**20  # bytes of a process that has loaded torch
SHARE = 0.9  # of the free memory: a margin for the system and the estimates
MAX_STACK = 64  # models that train together: more takes more memory for no gain
STACK_NUMBERS = 2**27  # evaluation logits of a stack: 512 MB with all intermediates


def free_memory() -> int | None:
    """Measure the bytes that can be had without swapping, within what a container allows; None if unknown."""
    found = []
    with contextlib.suppress(OSError):  # a system without /proc
        found.append(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):  # no such file, or the limit is `max`
        limit, used = (int(Path(CGROUP, name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(max(0, limit - used))
    return min(found, default=None)


def stack_that_fits(config: Config, memory: int | None) -> int | None:
    """Return the number of models of a config that fit into `memory` bytes of one process; None if unknown.

    Raises: UsageError if not even one fits.
    """
    if memory is None or config.train.device.startswith(("cuda", "mps")):
        return None
    one = trial_memory(config.task, config.model, config.train)
    count = int(memory * SHARE - PROCESS) // one
    if count < 1:
        raise UsageError(
            f"memory of a process: found {byte_size(memory)}, wanted about {byte_size(one + PROCESS)} for a trial",
            f"train fewer at a time (--jobs), or {LOWER_MEMORY}",
        )
    return count


def largest_stack(config: Config, memory: int | None = None) -> int:
    """Return the number of models that train well together in `memory` bytes. Raises: UsageError if none fits."""
    if is_file(config.model.attention):  # custom attention is called model by model
        stack_that_fits(config, memory)
        return 1
    if config.train.threads > 1:  # how threads split a product depends on the stack, and so do the last bits
        return 1
    task, rows = config.task, min(EVALUATED, config.train.eval_sequences)
    size = getattr(task, "vocab_size", None) or 256
    well = max(1, min(MAX_STACK, STACK_NUMBERS // (max(rows, config.train.batch_size) * task.seq_len * size)))
    fits = stack_that_fits(config, memory)
    return well if fits is None else min(well, fits)


def stack_size(config: Config, trials: int, slots: int, memory: int | None) -> int:
    """Return how many of a setting's trials train together: up to the largest stack, one or more for each slot.

    Raises: UsageError if not even one fits.
    """
    return min(largest_stack(config, memory), max(1, -(-trials // slots)))


def sweep_disk(cells: Sequence[Sequence[Config]]) -> int:
    """Estimate the bytes of all trials' folders; the configs of a cell differ only in their seeds."""
    return sum(len(cell) * trial_disk(cell[0].task, cell[0].model, cell[0].train) for cell in cells)


def check_capacity(cells: Sequence[Sequence[Config]], folder: Path, jobs: int | None) -> None:
    """Check that a sweep's trials fit onto the disk, and a trial of each cell into memory, `jobs` at a time.

    The configs of a cell differ only in their seeds. `jobs` is None if other machines train.
    Raises: StorageError, UsageError.
    """
    check_disk_space(folder, sweep_disk(cells))
    memory = free_memory() if jobs else None
    for cell in cells:
        stack_that_fits(cell[0], memory // jobs if jobs and memory is not None else None)
