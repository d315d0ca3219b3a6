"""Create a sweep: expand its grid, check memory and disk, and write its plan."""

from __future__ import annotations

from pathlib import Path

from mhsa_cli.config.grid import expand
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import text_digests
from mhsa_cli.jobs.sweep.capacity import check_capacity
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.runs.names import prepare_root
from mhsa_cli.runs.sweep_dir import SweepDir


def new_sweep(
    config: str | None,
    overrides: list[str],
    *,
    seeds: int,
    skip_invalid: bool,
    name: str | None,
    goal: float | None,
    root: Path,
    options: EngineOptions,
    command: list[str],
) -> SweepDir:
    """Expand the grid, check memory and disk, and write the plan. Raises: UsageError, StorageError."""
    grid = expand(config, overrides, seeds, skip_invalid=skip_invalid)
    for overrides_of, reason in grid.invalid:
        tell(f"skipped: {' '.join(f'{key}={text}' for key, text in overrides_of.items())}: {reason}")
    jobs = None if options.engine == "ray" else min(options.processes, sum(len(cell.configs) for cell in grid.cells))
    check_capacity([cell.configs for cell in grid.cells], prepare_root(root), jobs)
    from mhsa_cli.core.tasks.base import Task  # imports torch: only after the grid is checked
    from mhsa_cli.jobs.custom_attention import try_blocks

    configs = [cell.configs[0] for cell in grid.cells]
    plan = {
        "command": command,
        "goal": Task.goal_accuracy if goal is None else goal,
        "cells": [
            {"overrides": dict(cell.overrides), "config": config.to_dict(), "seeds": len(cell.configs)}
            for cell, config in zip(grid.cells, configs, strict=True)
        ],
    }
    digests = {"attention": try_blocks(configs, options.engine), "texts": text_digests(configs)}
    plan |= {key: found for key, found in digests.items() if found}
    if options.engine == "ray":
        from mhsa_cli.jobs.sweep.ray import connect

        connect(options.address)
    return SweepDir.create(root, name, f"sweep-{configs[0].task.name}", plan)
