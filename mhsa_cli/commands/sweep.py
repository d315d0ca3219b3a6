"""`mhsa sweep`: a grid of settings times seeds, trained as stacks, and what the seeds really show."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import (
    AttentionsOption,
    ConfigOption,
    JsonOption,
    Overrides,
    RunsOption,
    SetOption,
    all_overrides,
)
from mhsa_cli.errors import MhsaError, RunError, UsageError

if TYPE_CHECKING:
    from mhsa_cli.config.grid import Grid
    from mhsa_cli.jobs.sweep.scheduler import How
    from mhsa_cli.jobs.sweep.trial import Trial
    from mhsa_cli.records import SweepReport, TrialResult
    from mhsa_cli.runs.sweep_dir import SweepDir


LEFT_OUT = "left out"  # the status of a trial whose folder holds another training than the plan's
CHECKED = 1000  # trials that a resume reads whole; of larger sweeps that is left to `mhsa verify`


class Engines(StrEnum):
    """Where a sweep trains."""

    LOCAL = "local"
    RAY = "ray"


SeedsOption = Annotated[
    int | None, typer.Option("--seeds", metavar="N", help="Seeds for each setting, from train.seed on; 8 if left out.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", help="Processes that train at the same time: 1, or with Ray one for each CPU."),
]
EngineOption = Annotated[Engines, typer.Option("--engine", help="Train here, or as tasks of a Ray cluster.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", metavar="A", help="The Ray cluster's address; left out, one is started here.")
]
NameOption = Annotated[str | None, typer.Option("--name", metavar="NAME", help="The sweep's name.")]
ResumeOption = Annotated[
    str | None, typer.Option("--resume", metavar="SWEEP", help="Train what is missing of a sweep, nothing else.")
]
TargetOption = Annotated[
    float | None,
    typer.Option("--target", metavar="SHARE", help="Accuracy of a success; left out, the task's."),
]
SkipOption = Annotated[bool, typer.Option("--skip-invalid", help="Leave out settings that cannot be trained.")]


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
    target: TargetOption = None,
    skip_invalid: SkipOption = False,
    attention: AttentionsOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa sweep`."""
    from mhsa_cli.commands.sweep_output import exit_code, keep, show, tell_failed
    from mhsa_cli.jobs.custom_attention import named_again
    from mhsa_cli.jobs.messages import saying_kept, tell
    from mhsa_cli.jobs.signals import StopSignal
    from mhsa_cli.jobs.sweep.membership import find_left_out, forget_weights
    from mhsa_cli.jobs.sweep.scheduler import How, train_missing
    from mhsa_cli.jobs.sweep.trial import planned
    from mhsa_cli.renderers.kit.console import make_console, surface_of
    from mhsa_cli.runs.listing import run_argument
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.runs.sweep_dir import SweepDir
    from mhsa_cli.text import plural

    if address is not None and engine is not Engines.RAY:
        raise UsageError("--address names a Ray cluster", "add --engine ray")
    if jobs is not None and jobs < 1:
        raise UsageError(f"found --jobs {jobs}, wanted 1 or more")
    if target is not None and not 0 < target <= 1:
        raise UsageError(f"found --target {target}, wanted a share above 0, at most 1", "99 % is 0.99")
    if attention and resume is None:
        raise UsageError("--attention goes with --resume", "in a new sweep: model.attention=FILE.py:Class")
    root, how = runs_root(runs), How(engine.value, jobs, address)
    if resume is not None:
        own = (overrides, settings, config, name, target, seeds, skip_invalid or None)
        if any(given for given in own):
            what = "leave out settings, --config, --seeds, --name, --target, --skip-invalid"
            raise UsageError("--resume goes on with a sweep's own plan", what)
        folder = SweepDir.open(root, resume, write=True)
    else:
        folder = _new(
            config,
            all_overrides("sweep", overrides, settings, runs),
            8 if seeds is None else seeds,
            skip_invalid,
            name,
            target,
            root,
            how,
        )
    with folder as owned, StopSignal(animated=surface_of(make_console(stderr=True)).animate) as stop:
        plan = owned.read()
        trials = planned(plan)
        left_out: dict[str, str] = {}
        if resume is not None:
            left_out = find_left_out(owned, plan, trials)
        ours = [trial for trial in trials if trial.name not in left_out]
        if resume is not None:
            _tell_damage(owned, ours)
        waiting = [trial for trial in ours if not owned.is_done(trial.name)]
        if forget_weights(plan, {trial.name for trial in waiting}):
            owned.write(plan)  # else what is trained now would not be known again, were it not reported
        blocks = named_again(
            [trial.config for trial in waiting],
            plan.get("attention"),
            None if resume is None else attention or [],
            owned.name,
        )
        try:
            faults = train_missing(owned, plan, ours, how, stop, blocks)
        except SystemExit:  # a second Ctrl-C
            stop.hold()
            tell(f"stopped at once; to go on: mhsa sweep --resume {run_argument(owned.path)}")
            raise
        report, curves, machines = _report(owned, plan, trials, left_out)
        keep(owned, plan, report)
    stop.forgive_lost_output()
    with saying_kept(owned.path):
        show(owned, report, curves, as_json)
    _compare(machines)
    again = run_argument(owned.path)
    left = sum(trial.status not in ("finished", "failed", LEFT_OUT, "damaged") for trial in report.trials)
    if left:
        missing = f"{plural(left, 'trial')} {'has' if left == 1 else 'have'} no result yet"
        tell(f"stopped; {missing}; to go on: mhsa sweep --resume {again}")
    tell_failed(report, again, alone=how.engine == "local" and (how.jobs or 1) == 1)
    unread = any(trial.status in (LEFT_OUT, "damaged") for trial in report.trials)
    code = exit_code(report) or (RunError.exit_code if unread else 0)
    if stop.caught is not None or faults or code:
        raise typer.Exit(128 + stop.caught if stop.caught is not None else 1 if faults else code)


def _new(
    config: str | None,
    overrides: list[str],
    seeds: int,
    skip: bool,
    name: str | None,
    target: float | None,
    root: Path,
    how: How,
) -> SweepDir:
    """Expand the grid, check that it fits into memory and onto the disk, and write its plan."""
    from mhsa_cli.config.grid import expand
    from mhsa_cli.jobs.custom_attention import try_cells
    from mhsa_cli.jobs.messages import tell
    from mhsa_cli.jobs.resume import text_digests
    from mhsa_cli.jobs.sweep.capacity import check_room
    from mhsa_cli.runs.names import prepare_root
    from mhsa_cli.runs.sweep_dir import SweepDir

    grid: Grid = expand(config, overrides, seeds, skip_invalid=skip)
    for named, why in grid.invalid:
        tell(f"left out: {' '.join(f'{key}={text}' for key, text in named.items())}: {why}")
    check_room(
        [cell.configs for cell in grid.cells],
        prepare_root(root),
        None if how.engine == "ray" else min(how.jobs or 1, sum(len(cell.configs) for cell in grid.cells)),
    )
    cells = [
        {"overrides": dict(cell.overrides), "config": cell.configs[0].to_dict(), "seeds": len(cell.configs)}
        for cell in grid.cells
    ]
    from mhsa_cli.core.tasks.base import Task  # torch comes with it: not before the grid is known to be good

    wanted = Task.target_accuracy if target is None else target
    plan = {"command": ["mhsa", *sys.argv[1:]], "target": wanted, "cells": cells}
    blocks = try_cells([cell.configs[0] for cell in grid.cells], how.engine)
    plan |= {"attention": blocks} if blocks else {}
    texts = text_digests(cell.configs[0] for cell in grid.cells)
    plan |= {"texts": texts} if texts else {}
    if how.engine == "ray":
        from mhsa_cli.jobs.sweep.ray import connect

        connect(how.address)
    return SweepDir.create(root, name, f"sweep-{grid.cells[0].configs[0].task.name}", plan)


def _tell_damage(folder: SweepDir, trials: list[Trial]) -> None:
    """Name the finished trials that are not what they ended with: their figures are read all the same."""
    from mhsa_cli.jobs.messages import tell

    if len(trials) > CHECKED:
        return
    found = [trial.name for trial in trials if folder.is_done(trial.name) and folder.is_damaged(trial.name)]
    if found:
        which = f"{found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}"
        tell(
            f"note: damaged since it ended: {which}; see mhsa verify {folder.name}; delete its folder to train it anew"
        )


def _report(
    folder: SweepDir, plan: dict[str, Any], trials: list[Trial], left_out: Mapping[str, str]
) -> tuple[SweepReport, list[Any], Counter[tuple[str, str]]]:
    """Read every trial's result and sum them up; also count the kinds of torch and processor they were trained on."""
    from mhsa_cli.core.statistics.sweep_report import report
    from mhsa_cli.jobs.sweep.membership import reported_weights
    from mhsa_cli.jobs.sweep.trial import labels_of, outcome
    from mhsa_cli.records import TrialResult

    results: list[TrialResult] = []
    machines: Counter[tuple[str, str]] = Counter()
    curves: list[list[Any]] = [[] for _ in plan["cells"]]
    reported = reported_weights(plan)
    for trial in trials:
        if trial.name in left_out:
            results.append(_without_result(folder, trial, LEFT_OUT, left_out[trial.name], reported.get(trial.name)))
            continue
        info = folder.info(trial.name)
        try:
            own = outcome(folder, trial, info, plan["target"])
        except MhsaError as error:
            results.append(_without_result(folder, trial, "damaged", error.message, reported.get(trial.name)))
            continue
        machines.update([(str(info["torch"]), str(info["cpu"]))] if {"torch", "cpu"} <= info.keys() else [])
        status = info.get("status", "missing")
        results.append(
            TrialResult(
                run=str(folder.path / trial.name),
                cell=trial.cell,
                seed=trial.config.train.seed,
                status=status if isinstance(status, str) else "damaged",
                final_loss=own.get("eval_loss"),
                final_accuracy=own.get("eval_accuracy"),
                steps_to_target=own.get("steps_to_target"),
                seconds=info.get("seconds"),
                labels=labels_of(own),
                message=own.get("message", ""),
                cause=own.get("cause"),
                weights_sha256=info.get("weights_sha256") if status == "finished" else None,
            )
        )
        if own.get("curve") and status == "finished":
            curves[trial.cell].append(own["curve"])
    cells = [cell["overrides"] for cell in plan["cells"]]
    return report(cells, results, plan["target"], trials[0].config.train.seed), curves, machines


def _without_result(folder: SweepDir, trial: Trial, status: str, why: str, weights: str | None) -> TrialResult:
    """Make the row of a trial whose folder tells nothing of it; `weights` is the digest that was reported of it."""
    from mhsa_cli.records import TrialResult

    run, seed = str(folder.path / trial.name), trial.config.train.seed
    return TrialResult(run, trial.cell, seed, status, None, None, None, None, message=why, weights_sha256=weights)


def _compare(machines: Counter[tuple[str, str]]) -> None:
    """Say which trials may have other bits than they would have here."""
    from mhsa_cli.core.devices import cpu_kind, torch_version
    from mhsa_cli.jobs.messages import tell

    here = torch_version(), cpu_kind()
    for (torch, cpu), count in machines.items():
        if (torch, cpu) != here:
            told = f"{count} trials were trained with torch {torch} on {cpu}"
            tell(f"{told}; here is torch {here[0]} on {here[1]}: their bits may differ from what this machine gives")
