"""The plan of a sweep: its trials, and where they train."""

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
    """One model to train: the number of its cell in the grid, the name of its folder, its config.

    `order` is its place among all runs, set by the plan and not by the clock.
    """

    cell: int
    name: str
    config: Config
    order: int = 0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where a sweep trains: in `jobs` processes here, or as that many tasks of a cluster with the engine "ray"."""

    engine: str = "local"
    jobs: int | None = None
    address: str | None = None

    @property
    def processes(self) -> int:
        """The number of processes here."""
        return self.jobs or 1


def name_trials(trials: Sequence[Trial]) -> str:
    """Name a trial, or several by the first one."""
    return trials[0].name if len(trials) == 1 else f"{trials[0].name} and {len(trials) - 1} more"


def planned_trials(plan: Mapping[str, Any]) -> list[Trial]:
    """List the trials of a plan in its order. Raises: RunError if it has none, OtherVersionError."""
    trials: list[Trial] = []
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
                trials.append(Trial(number, name, config, first_order + len(trials)))
    except UsageError as error:
        raise other_version("the sweep's plan", error) from error
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise RunError(f"{SWEEP} is damaged: its plan cannot be read") from error
    return trials


def _config_and_seeds(cell: Mapping[str, Any]) -> tuple[Any, int]:
    """Return a cell's config and number of seeds; the oldest plans list one config for each seed."""
    return (cell["configs"][0], len(cell["configs"])) if "configs" in cell else (cell["config"], cell["seeds"])
