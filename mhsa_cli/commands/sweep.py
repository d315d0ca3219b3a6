"""`mhsa sweep`: train a grid of settings with many seeds, as stacks, and report the differences."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

from mhsa_cli.commands.options import (
    AttentionsOption,
    ConfigOption,
    JsonOption,
    Overrides,
    RunsOption,
    ScoresOption,
    SetOption,
    TasksOption,
    all_overrides,
    flag,
    option,
)
from mhsa_cli.commands.pictures import (
    AsOption,
    OutputOption,
    PictureFile,
    ThemeOption,
    WidthOption,
    only_option,
    picture_file,
)
from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.config.own_score import check_names
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.sweep.plan import EngineOptions
from mhsa_cli.records.sweep import SweepPlan
from mhsa_cli.renderers.figures.sheet_options import SWEEP_PARTS
from mhsa_cli.runs.names import SHOW, runs_root
from mhsa_cli.runs.sweep_dir import SweepDir


class Engines(StrEnum):
    """Where a sweep trains."""

    LOCAL = "local"
    RAY = "ray"


def sweep(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    seeds: Annotated[
        int | None, option("--seeds", "N", "seeds per setting, from train.seed on [default: the config's, or 8]")
    ] = None,
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
    goal: Annotated[
        float | None, option("--goal", "SHARE", "accuracy that counts as success [default: the task's, 0.99]")
    ] = None,
    skip_invalid: Annotated[bool, flag("--skip-invalid", "skip settings that cannot be trained")] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "print time, memory, disk and what the seeds could show; train and write nothing")
    ] = False,
    attention: AttentionsOption = None,
    task: TasksOption = None,
    score: ScoresOption = None,
    output: OutputOption = None,
    look: AsOption = None,
    width: WidthOption = None,
    theme: ThemeOption = None,
    only: Annotated[str | None, only_option(*SWEEP_PARTS)] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa sweep`."""
    root, file = runs_root(runs), picture_file(output, look, width, theme, only)
    if overrides and overrides[0] == SHOW:  # the report of a sweep again
        given = (config, settings, seeds, jobs, address, name, resume, goal, attention, task, score)
        alone = all(value is None for value in given) and not skip_invalid and not dry_run
        if len(overrides) != 2 or not alone or engine is not Engines.LOCAL:
            raise UsageError(
                "sweep show: wanted one SWEEP, and only --output, --runs and --json", "mhsa sweep show SWEEP"
            )
        _show(SweepDir.open(root, overrides[1]), file, as_json)
        return
    if address is not None and engine is not Engines.RAY:
        raise UsageError("--address needs --engine ray", "add --engine ray")
    if attention and resume is None:
        raise UsageError("--attention needs --resume", "in a new sweep: model.attention=FILE.py:CLASS")
    if dry_run and file is not None:
        raise UsageError("--dry-run writes nothing: there is no sweep to draw", "leave --output out")
    if task and resume is None:
        raise UsageError("--task needs --resume", "in a new sweep: task.name=FILE.py:NAME")
    options = EngineOptions(engine.value, jobs, address)
    if options.processes > 1:  # NumPy's threads, of no use here, would keep this process from being forked
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if resume is not None:
        if any((overrides, settings, config, name, goal, seeds, skip_invalid, dry_run)):
            excluded = "settings, --config, --seeds, --name, --goal, --skip-invalid and --dry-run"
            raise UsageError(f"--resume excludes {excluded}", "a resumed sweep keeps its plan")
        folder = SweepDir.open(root, resume, write=True)
    else:
        from mhsa_cli.jobs.sweep.new import check_goal, expand_grid, new_sweep  # not for help
        from mhsa_cli.renderers.pictures.sweep_plan import too_few

        check_goal(goal)
        check_names(score or ())
        changes = all_overrides("sweep", overrides, settings, runs)
        grid = expand_grid(config, changes, seeds, skip_invalid)
        from mhsa_cli.jobs.sweep.arithmetic import (  # imports torch: only after the grid is checked
            grid_power,
            plan_sweep,
        )

        if dry_run:
            _show_plan(plan_sweep(grid, name=name, root=root, options=options, scores=score or ()), as_json)
            return
        command = ["mhsa", *sys.argv[1:]]
        folder = new_sweep(grid, name=name, goal=goal, root=root, options=options, command=command, scores=score or ())
        if note := too_few(grid_power(grid)):
            tell(note)
    from mhsa_cli.commands.sweep_output import show_training  # not for help

    named = OwnCodes(attention or (), task or (), score or ())
    show_training(folder, options, named, file, as_json, resumed=resume is not None)


def _show(folder: SweepDir, file: PictureFile | None, as_json: bool) -> None:
    """Run `mhsa sweep show`: print the report of a sweep as it is now."""
    from mhsa_cli.commands.sweep_output import show_sweep  # not for help
    from mhsa_cli.jobs.sweep.run import read_sweep

    results = read_sweep(folder)
    show_sweep(folder, results, file, as_json)
    for note in results.notes:
        tell(note)


def _show_plan(plan: SweepPlan, as_json: bool) -> None:
    """Print the arithmetic of a sweep that is not started."""
    from mhsa_cli.commands.output import Paper, print_json
    from mhsa_cli.renderers.pictures.sweep_plan import plan_lines

    if as_json:
        print_json(asdict(plan))
        return
    paper = Paper()
    paper.draw(plan_lines(plan, paper.surface))
