"""A sweep's plan: its trials, one model each, and where they train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.config.grid import MAX_TRIALS
from mhsa_cli.config.load import check
from mhsa_cli.config.problems import Source
from mhsa_cli.config.schema import Config
from mhsa_cli.config.yaml_events import Document
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.run_config import other_version
from mhsa_cli.runs.codec import is_number
from mhsa_cli.runs.listing import SWEEP
from mhsa_cli.runs.sweep_dir import trial_name


@dataclass(frozen=True, slots=True)
class Trial:
    """One model to be trained: its cell's number in the grid, its folder's name, its config.

    `order` is its place among all runs: the plan's, whatever the clock says by the time it is trained.
    """

    cell: int
    name: str
    config: Config
    order: int = 0


def name_trials(trials: Sequence[Trial]) -> str:
    """Name a trial, or several by the first of them."""
    return trials[0].name if len(trials) == 1 else f"{len(trials)} trials from {trials[0].name} on"


def planned_trials(plan: Mapping[str, Any]) -> list[Trial]:
    """List the trials of a sweep's plan, in its order. Raises: RunError if it holds none, OtherVersionError."""
    found: list[Trial] = []
    try:
        first_order = max(0, int(1_000_000 * plan.get("started", 0)))
        cells = [_config_and_seeds(cell) for cell in plan["cells"]]
        if not 1 <= sum(seeds for _, seeds in cells) <= MAX_TRIALS or not is_number(plan["goal"]):
            raise ValueError("no trial, too many, or no goal")
        for number, (cell, (settings, seeds)) in enumerate(zip(plan["cells"], cells, strict=True)):
            first = check(Document(Source(SWEEP), settings), files=False)
            for seed in range(first.train.seed, first.train.seed + seeds):
                config = first.model_copy(update={"train": first.train.model_copy(update={"seed": seed})})
                name = trial_name(cell["overrides"], seed, number)
                found.append(Trial(number, name, config, first_order + len(found)))
    except UsageError as error:
        raise other_version("the sweep's plan", error) from error
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise RunError(f"{SWEEP} is damaged: it holds no plan that can be read") from error
    return found


def _config_and_seeds(cell: Mapping[str, Any]) -> tuple[Any, int]:
    """Give a cell's config and the number of its seeds; the oldest plans list the config with each of them."""
    return (cell["configs"][0], len(cell["configs"])) if "configs" in cell else (cell["config"], cell["seeds"])


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where a sweep trains: in `jobs` processes here, or with the engine "ray" as so many tasks of a cluster."""

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None

    @property
    def processes(self) -> int:
        """How many train here at the same time."""
        return self.jobs or 1
