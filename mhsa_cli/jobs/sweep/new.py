"""Create a sweep: expand its grid, check memory and disk, and write its plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.config.dump import dump_sweep
from mhsa_cli.config.grid import Grid, expand
from mhsa_cli.config.own_task import short_name
from mhsa_cli.errors import unwanted
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import text_digests
from mhsa_cli.jobs.sweep.capacity import check_capacity
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.runs.names import prepare_root
from mhsa_cli.runs.sweep_dir import SweepDir


def check_goal(goal: float | None) -> None:
    """Check the accuracy that counts as success. Raises: UsageError."""
    if goal is not None and not 0 < goal <= 1:
        raise unwanted("--goal", goal, "a number above 0, at most 1", "99% is 0.99")


def expand_grid(config: str | None, overrides: list[str], seeds: int | None, skip_invalid: bool) -> Grid:
    """Expand the grid of a new sweep, and print the settings that are skipped. Raises: UsageError."""
    grid = expand(config, overrides, seeds, skip_invalid=skip_invalid)
    for overrides_of, reason in grid.invalid:
        tell(f"skipped: {' '.join(f'{key}={text}' for key, text in overrides_of.items())}: {reason}")
    return grid


def check_plan(grid: Grid, folder: Path, options: EngineOptions, scores: Sequence[str] = ()) -> dict[str, Any]:
    """Check memory, the disk of `folder` and the user's code; return the digests of the files that the plan needs.

    Raises: UsageError, StorageError.
    """
    check_capacity([cell.configs for cell in grid.cells], folder, processes(grid, options))
    from mhsa_cli.jobs.custom_attention import try_blocks  # imports torch: only after the grid is checked
    from mhsa_cli.jobs.initial import init_digests
    from mhsa_cli.jobs.own_score import score_digests
    from mhsa_cli.jobs.own_task import task_digests

    configs = [cell.configs[0] for cell in grid.cells]
    digests = {
        "attention": try_blocks(configs, options.engine),
        "texts": {**text_digests(configs), **init_digests(configs)},
        "tasks": task_digests(configs),
        "scores": score_digests(scores, configs),
    }
    return {key: found for key, found in digests.items() if found}


def processes(grid: Grid, options: EngineOptions) -> int | None:
    """Return the number of processes that train a sweep here; None if a cluster does."""
    return None if options.engine == "ray" else min(options.processes, grid.trials)


def new_sweep(
    grid: Grid,
    *,
    name: str | None,
    goal: float | None,
    root: Path,
    options: EngineOptions,
    command: list[str],
    scores: Sequence[str] = (),
) -> SweepDir:
    """Check memory, disk and the user's code, and write the plan. Raises: UsageError, StorageError."""
    digests = check_plan(grid, prepare_root(root), options, scores)
    from mhsa_cli.jobs.own_task import goal_accuracy  # imports torch

    plan = {
        "command": command,
        "goal": goal_accuracy([cell.configs[0] for cell in grid.cells]) if goal is None else goal,
        "cells": [
            {"overrides": dict(cell.overrides), "config": cell.configs[0].to_dict(), "seeds": len(cell.configs)}
            for cell in grid.cells
        ],
        **digests,
    }
    if options.engine == "ray":
        from mhsa_cli.jobs.sweep.ray import connect

        connect(options.address)
    return SweepDir.create(root, name, stem(grid), plan, dump_sweep(grid.base.data, grid.sweep))


def stem(grid: Grid) -> str:
    """Return the name of a sweep that is given none, before a number."""
    return f"sweep-{short_name(grid.cells[0].configs[0].task.name).lower()}"
