"""`mhsa sweep`: train a grid of settings with many seeds, as stacks, and report the differences."""

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
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.sweep_dir import SweepDir


class Engines(StrEnum):
    """Where a sweep trains."""

    LOCAL = "local"
    RAY = "ray"


def sweep(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    seeds: Annotated[int | None, option("--seeds", "N", "seeds per setting, from train.seed on [default: 8]")] = None,
    jobs: Annotated[
        int | None, option("--jobs, -j", "N", "processes at a time [default: 1; Ray: one per CPU]", min=1)
    ] = None,
    engine: Annotated[Engines, flag("--engine", "train here, or on a Ray cluster")] = Engines.LOCAL,
    address: Annotated[
        str | None, option("--address", "ADDRESS", "address of the Ray cluster [default: start one]")
    ] = None,
    name: Annotated[str | None, option("--name", "NAME", "name of the sweep [default: sweep-TASK]")] = None,
    resume: Annotated[
        str | None, option("--resume", "SWEEP", "continue a sweep: train the trials without a result")
    ] = None,
    goal: Annotated[float | None, option("--goal", "SHARE", "accuracy that counts as success [default: 0.99]")] = None,
    skip_invalid: Annotated[bool, flag("--skip-invalid", "skip settings that cannot be trained")] = False,
    attention: AttentionsOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa sweep`."""
    if address is not None and engine is not Engines.RAY:
        raise UsageError("--address needs --engine ray", "add --engine ray")
    if goal is not None and not 0 < goal <= 1:
        raise unwanted("--goal", goal, "a number above 0, at most 1", "99% is 0.99")
    if attention and resume is None:
        raise UsageError("--attention needs --resume", "in a new sweep: model.attention=FILE.py:CLASS")
    root, options = runs_root(runs), EngineOptions(engine.value, jobs, address)
    if resume is not None:
        if any((overrides, settings, config, name, goal, seeds, skip_invalid)):
            excluded = "settings, --config, --seeds, --name, --goal and --skip-invalid"
            raise UsageError(f"--resume excludes {excluded}", "a resumed sweep keeps its plan")
        folder = SweepDir.open(root, resume, write=True)
    else:
        from mhsa_cli.jobs.sweep.new import new_sweep  # not for help

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
    from mhsa_cli.commands.sweep_output import show_training  # not for help

    show_training(folder, options, attention, as_json, resumed=resume is not None)
