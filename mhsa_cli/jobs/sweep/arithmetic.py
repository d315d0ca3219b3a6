"""The arithmetic of a sweep before it starts: trials, time, memory, disk, and what its seeds can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from mhsa_cli.config.estimate import trial_memory
from mhsa_cli.config.grid import Grid
from mhsa_cli.core.power import chance_to_show, seed_power
from mhsa_cli.jobs.sweep.capacity import PROCESS, free_memory, stack_size, sweep_disk
from mhsa_cli.jobs.sweep.new import check_plan, processes, stem
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.records.sweep import SeedPower, SweepPlan
from mhsa_cli.runs.names import find_root
from mhsa_cli.runs.new_folder import check_free, free_space


def plan_sweep(
    grid: Grid, *, name: str | None, root: Path, options: EngineOptions, scores: Sequence[str] = ()
) -> SweepPlan:
    """Compute what a sweep will take, refused where the sweep would be; nothing is written.

    A local sweep's time is measured by training for a moment. Raises: UsageError, StorageError.
    """
    folder, began = find_root(root), perf_counter()
    check_plan(grid, folder, options, scores)  # loads torch
    start = perf_counter() - began
    check_free(root, name, stem(grid))
    slots = processes(grid, options)
    firsts = [cell.configs[0] for cell in grid.cells]
    on_cpu = not any(config.train.device.startswith(("cuda", "mps")) for config in firsts)
    free = free_memory() if slots is not None and on_cpu else None
    share = None if slots is None or free is None else free // slots
    sizes = [stack_size(config, grid.seeds, slots or 1, share) for config in firsts]
    largest = max(
        size * trial_memory(config.task, config.model, config.train) for size, config in zip(sizes, firsts, strict=True)
    )
    time = None
    if slots is not None:
        from mhsa_cli.jobs.sweep.duration import sweep_time

        time = sweep_time(firsts, sizes, grid.seeds, slots, start)
    power = grid_power(grid)
    return SweepPlan(
        settings=len(grid.cells),
        skipped=len(grid.invalid),
        seeds=grid.seeds,
        trials=grid.trials,
        processes=slots,
        together=max(sizes),
        memory=(PROCESS + largest) * (slots or 1),
        memory_free=free,
        disk=sweep_disk([cell.configs for cell in grid.cells]),
        disk_free=free_space(folder),
        time=time,
        power=None if power is None else replace(power, power=chance_to_show(grid.seeds, power.comparisons)),
    )


def grid_power(grid: Grid) -> SeedPower | None:
    """Compute what the seeds of a grid can show; None if no two settings are compared."""
    return seed_power([cell.overrides for cell in grid.cells], grid.seeds)
