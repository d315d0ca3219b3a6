"""`mhsa train`: from a config to a run folder, with the loss falling before one's eyes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mhsa_cli.commands.options import (
    AttentionOption,
    ConfigOption,
    JsonOption,
    Overrides,
    RunsOption,
    SetOption,
    all_overrides,
)
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.messages import tell

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.runs.checkpoints import Loaded
    from mhsa_cli.runs.run_dir import RunDir

NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The run's name; left out, a free one is chosen.")
]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", metavar="RUN", help="Go on with a run from its newest checkpoint (`newest` = that run)."),
]
InexactOption = Annotated[
    bool, typer.Option("--allow-inexact", help="Resume although this device, torch or thread count changes the bits.")
]


def train(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    name: NameOption = None,
    resume: ResumeOption = None,
    attention: AttentionOption = None,
    allow_inexact: InexactOption = False,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa train`."""
    from mhsa_cli.config.load import load_config
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.text import escape

    changes = all_overrides("train", overrides, settings, runs)
    root = runs_root(runs)
    if attention is not None and resume is None:
        raise UsageError("--attention goes with --resume", f"a new run: mhsa train model.attention={escape(attention)}")
    if resume is None:
        _train_new(load_config(config, changes), root, name, as_json)
        return
    if config is not None or name is not None:
        raise UsageError("--resume goes on with a run's own config and name", "leave out --config and --name")
    _resume(root, resume, changes, attention, allow_inexact, as_json)


def _train_new(config: Config, root: Path, name: str | None, as_json: bool) -> None:
    from mhsa_cli.config.load import dump_yaml
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.jobs.custom_attention import begin, facts
    from mhsa_cli.jobs.resume import keep_text
    from mhsa_cli.jobs.train import check_room, prepare_device, preparing, run_training
    from mhsa_cli.runs.names import prepare_root
    from mhsa_cli.runs.run_dir import RunDir

    device = prepare_device(config)
    task = build_task(config.task)
    model = begin(config, task)
    check_room(config, prepare_root(root))
    stem = f"{config.task.name}-h{config.model.n_heads}"
    with RunDir.create(root, name, stem=stem, command=["mhsa", *sys.argv[1:]]) as run:
        with preparing(run):
            run.write_config(dump_yaml(config))
            keep_text(config, run)
            run.update(**facts(model))
        run_training(config, task, device, run, as_json, model=model)


def _resume(
    root: Path, name: str, changes: list[str], attention: str | None, allow_inexact: bool, as_json: bool
) -> None:
    from mhsa_cli.config.load import dump_yaml
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.core.training.engine import build_model
    from mhsa_cli.jobs.custom_attention import again
    from mhsa_cli.jobs.resume import check_same_machine, differences, flat, own_text
    from mhsa_cli.jobs.sweep.membership import UNSEEN
    from mhsa_cli.jobs.train import check_room, machine, prepare_device, preparing, run_training
    from mhsa_cli.runs.listing import dropped_records
    from mhsa_cli.runs.run_dir import RunDir

    found = RunDir.open(root, name)
    if _is_done(found, changes, as_json):
        return
    with RunDir.open(root, found.path, write=True) as run:
        before, config, checkpoint = _start(run, changes)
        for note in checkpoint.notes:
            tell(f"note: {note}")
        custom = again(config, run.read_run_json(), attention, who=run.name, allow=allow_inexact)
        device = prepare_device(config)
        check_same_machine(run.read_run_json(), machine(config, device), allow_inexact)
        task = build_task(own_text(config, run).task)
        model = None if custom is None else build_model(config, task, custom=custom)
        check_room(config, run.path)
        with preparing(run):
            dropped = run.truncate_metrics(checkpoint.step)
            run.update(dropped_records=dropped_records(run.read_run_json()) + dropped)
            if checkpoint.step and next(iter(run.read_metrics()), None) is None:
                tell(f"note: the metrics are gone; the curve begins at step {checkpoint.step}")
            if changes:
                _tell_rate(before, config, checkpoint.step)
                earlier = run.read_run_json().get("changes")
                one = {"step": checkpoint.step, "settings": changes}
                run.update(changes=[*(earlier if isinstance(earlier, list) else []), one])
                if differences(flat(before.to_dict()), flat(config.to_dict()), UNSEEN):
                    _tell_sweep(run)
                run.write_config(dump_yaml(config))  # after that: a config is held against what may have changed
        run_training(config, task, device, run, as_json, checkpoint.files, model)


def _tell_rate(before: Config, after: Config, step: int) -> None:
    """Say so where a schedule that falls gets another end: the rate is then not what it would have been."""
    from mhsa_cli.core.training.stack import learning_rate

    if step == 0 or after.train.schedule == "constant" or after.total_steps == before.total_steps:
        return
    was, now = (learning_rate(config.train, step) for config in (before, after))
    tell(f"note: the {after.train.schedule} schedule now ends at step {after.total_steps}, not {before.total_steps}:")
    tell(f"  step {step} had the learning rate {was:.3g}; at this place of the new schedule it is {now:.3g}")


def _tell_sweep(run: RunDir) -> None:
    """Say so where the run is a trial: with other settings it is no longer the one that its sweep planned."""
    from mhsa_cli.runs.listing import SWEEP
    from mhsa_cli.text import escape

    sweep = run.path.parent
    if (sweep / SWEEP).is_file():
        tell(f"note: this is no longer the trial that the sweep {escape(sweep.name)} planned; its report leaves it out")


def _start(run: RunDir, changes: list[str]) -> tuple[Config, Config, Loaded]:
    """Find what a run goes on with: its config, the same with the changes, and its newest whole checkpoint."""
    from mhsa_cli.core.training.checkpoint import digest, read_state, weights_of
    from mhsa_cli.jobs.load_run import check_weights
    from mhsa_cli.jobs.resume import check_unedited, run_config

    config, checkpoint = run_config(run, changes), run.load_checkpoint()
    before = run_config(run)
    check_unedited(before, read_state(checkpoint.files, checkpoint.step)["config"], run)
    check_weights(run, checkpoint.step, digest(weights_of(checkpoint.files)))
    return before, config, checkpoint


def _is_done(run: RunDir, changes: list[str], as_json: bool) -> bool:
    """Say so if a run has nothing left to do; it is only read, so not even its lock file changes."""
    from mhsa_cli.commands.output import print_json
    from mhsa_cli.commands.run_summary import result_document
    from mhsa_cli.runs.listing import run_argument

    _, config, checkpoint = _start(run, changes)
    # A run that was killed behind its last step has its results still to write.
    if checkpoint.step < config.total_steps or run.read_run_json().get("status") not in ("finished", "stopped"):
        return False
    epochs = max(config.train.epochs, -(-checkpoint.step // config.train.steps_per_epoch)) + 1
    more = f"mhsa train --resume {run_argument(run.path)} train.epochs={epochs}"
    tell(f"{run.name} is already at step {checkpoint.step} of {config.total_steps}; to go on: {more}")
    if as_json:
        print_json(result_document(run))
    return True
