"""`mhsa sweep`: a grid of settings times seeds, trained as stacks, and what the seeds really show."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

from mhsa_cli.commands.options import (
    AttentionsOption,
    ConfigOption,
    JsonOption,
    Overrides,
    RunsOption,
    SetOption,
    all_overrides,
    flag,
    option,
)
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.sweep_dir import SweepDir


class Engines(StrEnum):
    """Where a sweep trains."""

    LOCAL = "local"
    RAY = "ray"


SeedsOption = Annotated[
    int | None, option("--seeds", "N", "Seeds for each setting, from train.seed on; 8 if left out.")
]
JobsOption = Annotated[
    int | None, option("--jobs", "N", "Processes that train at the same time: 1, or with Ray one for each CPU.")
]
EngineOption = Annotated[Engines, flag("--engine", "Train here, or as tasks of a Ray cluster.")]
AddressOption = Annotated[
    str | None, option("--address", "A", "The Ray cluster's address; left out, one is started here.")
]
NameOption = Annotated[str | None, option("--name", "NAME", "The sweep's name.")]
ResumeOption = Annotated[str | None, option("--resume", "SWEEP", "Train what is missing of a sweep, nothing else.")]
GoalOption = Annotated[
    float | None, option("--goal", "SHARE", "Accuracy that counts as success, 0..1. [default: the task's]")
]
SkipOption = Annotated[bool, flag("--skip-invalid", "Leave out settings that cannot be trained.")]


def sweep(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    seeds: SeedsOption = None,
    jobs: JobsOption = None,
    engine: EngineOption = Engines.LOCAL,
    address: AddressOption = None,
    name: NameOption = None,
    resume: ResumeOption = None,
    goal: GoalOption = None,
    skip_invalid: SkipOption = False,
    attention: AttentionsOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa sweep`."""
    _check(engine, address, jobs, goal, attention, resume)
    root, options = runs_root(runs), EngineOptions(engine.value, jobs, address)
    if resume is not None:
        if any((overrides, settings, config, name, goal, seeds, skip_invalid)):
            what = "leave out settings, --config, --seeds, --name, --goal, --skip-invalid"
            raise UsageError("--resume goes on with a sweep's own plan", what)
        folder = SweepDir.open(root, resume, write=True)
    else:
        from mhsa_cli.jobs.sweep.new import new_sweep  # help needs no grid

        folder = new_sweep(
            config,
            all_overrides("sweep", overrides, settings, runs),
            seeds=8 if seeds is None else seeds,
            skip_invalid=skip_invalid,
            name=name,
            goal=goal,
            root=root,
            options=options,
            command=["mhsa", *sys.argv[1:]],
        )
    from mhsa_cli.commands.sweep_output import show_training  # nor pictures

    show_training(folder, options, attention, as_json, resumed=resume is not None)


def _check(
    engine: Engines,
    address: str | None,
    jobs: int | None,
    goal: float | None,
    attention: list[str] | None,
    resume: str | None,
) -> None:
    """Refuse options that have nothing to say to each other, or no sense. Raises: UsageError."""
    if address is not None and engine is not Engines.RAY:
        raise UsageError("--address names a Ray cluster", "add --engine ray")
    if jobs is not None and jobs < 1:
        raise UsageError(f"found --jobs {jobs}, wanted 1 or more")
    if goal is not None and not 0 < goal <= 1:
        raise UsageError(f"found --goal {goal}, wanted a share above 0, at most 1", "99% is 0.99")
    if attention and resume is None:
        raise UsageError("--attention goes with --resume", "in a new sweep: model.attention=FILE.py:Class")
