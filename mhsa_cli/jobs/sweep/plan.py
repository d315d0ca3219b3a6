"""A new sweep: its grid expanded, found to fit into memory and onto the disk, and its plan written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mhsa_cli.config.grid import expand
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import text_digests
from mhsa_cli.jobs.sweep.capacity import check_capacity
from mhsa_cli.runs.names import prepare_root
from mhsa_cli.runs.sweep_dir import SweepDir


@dataclass(frozen=True, slots=True)
class How:
    """Where a sweep trains: in `jobs` processes here, or with the engine "ray" as so many tasks of a cluster."""

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None


def new_sweep(
    config: str | None,
    overrides: list[str],
    *,
    seeds: int,
    skip_invalid: bool,
    name: str | None,
    target: float | None,
    root: Path,
    how: How,
    command: list[str],
) -> SweepDir:
    """Expand the grid, check that it fits into memory and onto the disk, and write its plan.

    Raises: UsageError, StorageError.
    """
    grid = expand(config, overrides, seeds, skip_invalid=skip_invalid)
    for named, why in grid.invalid:
        tell(f"left out: {' '.join(f'{key}={text}' for key, text in named.items())}: {why}")
    check_capacity(
        [cell.configs for cell in grid.cells],
        prepare_root(root),
        None if how.engine == "ray" else min(how.jobs or 1, sum(len(cell.configs) for cell in grid.cells)),
    )
    cells = [
        {"overrides": dict(cell.overrides), "config": cell.configs[0].to_dict(), "seeds": len(cell.configs)}
        for cell in grid.cells
    ]
    from mhsa_cli.core.tasks.base import Task  # torch comes with it: not before the grid is known to be good
    from mhsa_cli.jobs.custom_attention import try_cells

    wanted = Task.target_accuracy if target is None else target
    plan = {"command": command, "target": wanted, "cells": cells}
    blocks = try_cells([cell.configs[0] for cell in grid.cells], how.engine)
    plan |= {"attention": blocks} if blocks else {}
    texts = text_digests(cell.configs[0] for cell in grid.cells)
    plan |= {"texts": texts} if texts else {}
    if how.engine == "ray":
        from mhsa_cli.jobs.sweep.ray import connect

        connect(how.address)
    return SweepDir.create(root, name, f"sweep-{grid.cells[0].configs[0].task.name}", plan)
