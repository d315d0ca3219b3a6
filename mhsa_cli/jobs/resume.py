"""Resume a run from its newest checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.schema import Config
from mhsa_cli.core.training.checkpoint import digest, weights_of
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import learning_rate
from mhsa_cli.core.training.state import read_state
from mhsa_cli.jobs.custom_attention import load_block
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_score import resumed_scores
from mhsa_cli.jobs.own_task import load_task
from mhsa_cli.jobs.run_config import (
    EARLY_STOP,
    check_same_machine,
    check_same_steps,
    check_unedited,
    differences,
    flat,
    own_text,
    run_config,
)
from mhsa_cli.jobs.sweep.membership import UNREPORTED
from mhsa_cli.jobs.train import TrainingSetup, check_room, machine, noting_failure, prepare_device
from mhsa_cli.runs.checkpoints import Loaded
from mhsa_cli.runs.listing import ENDED_BY, METRICS, SWEEP, dropped_records
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape


class ResumePoint(NamedTuple):
    """Where a run resumes: its config before and after the changes, and its newest whole checkpoint."""

    before: Config
    config: Config
    checkpoint: Loaded

    def is_done(self, run: RunDir) -> bool:
        """Whether nothing is left to do. A run killed after its last step still has to write its results."""
        ended = run.read_run_json()["status"] in ("finished", "stopped")
        return ended and (self.checkpoint.step >= self.config.total_steps or self.ended_by(run) is not None)

    def ended_by(self, run: RunDir) -> str | None:
        """Return the setting by which the run ended before its last step, if nothing of it is changed now."""
        info, before, after = run.read_run_json(), flat(self.before), flat(self.config)
        same = all(before[key] == after[key] for key in EARLY_STOP)
        return info.get(ENDED_BY) if info["status"] == "finished" and same else None


def read_resume_point(run: RunDir, changes: list[str]) -> ResumePoint:
    """Read where a run resumes, changing nothing. Raises: RunError, UsageError."""
    config, checkpoint = run_config(run, changes), run.load_checkpoint()
    before = run_config(run)
    check_unedited(before, read_state(checkpoint.files, checkpoint.step)["config"], run)
    check_weights(run, checkpoint.step, digest(weights_of(checkpoint.files)))
    return ResumePoint(before, config, checkpoint)


@contextlib.contextmanager
def resumed_run(
    root: Path, path: Path, changes: list[str], own: OwnCode, allow_inexact: bool
) -> Iterator[TrainingSetup]:
    """Lock a run and truncate its records to its newest checkpoint.

    `own` names the user's code of the run; `allow_inexact` accepts a machine on which bits may differ.
    Raises: RunError, UsageError, StorageError.
    """
    with RunDir.open(root, path, write=True) as run:
        before, config, checkpoint = read_resume_point(run, changes)
        for note in checkpoint.notes:
            tell(f"note: {note}")
        custom = load_block(config, run.read_run_json(), own.attention, who=run.name, allow_changed=allow_inexact)
        device = prepare_device(config)
        check_same_machine(run.read_run_json(), machine(config, device), allow_inexact)
        trained_with = read_state(checkpoint.files, checkpoint.step)["config"]
        if 0 < checkpoint.step < config.total_steps:
            check_same_steps(config, trained_with, allow_inexact)
        info = run.read_run_json()
        task = load_task(own_text(config, run), info, own.task, who=run.name, allow_changed=allow_inexact)
        scores = resumed_scores(info, own.scores, run.name, allow_inexact)
        model = None if custom is None else build_model(config, task, custom=custom)
        check_room(config, run.path)
        with noting_failure(run):
            dropped = run.truncate_after(checkpoint.step)
            run.update(dropped_records=dropped_records(run.read_run_json()) + dropped)
            if checkpoint.step and next(iter(run.records(METRICS)), None) is None:
                tell(f"note: metrics.jsonl is lost; the curve begins at step {checkpoint.step}")
            if changes:
                _note_changes(run, before, config, changes, checkpoint.step)
        yield TrainingSetup(config, task, device, run, checkpoint.files, model, scores)


def _note_changes(run: RunDir, before: Config, config: Config, changes: list[str], step: int) -> None:
    """Write changed settings into the run folder, with notes on their other effects."""
    _note_schedule(before, config, step)
    earlier = run.read_run_json().get("changes") or []
    run.update(changes=[*earlier, {"step": step, "settings": changes}])
    sweep = run.path.parent
    if differences(before, config, UNREPORTED) and (sweep / SWEEP).is_file():
        tell(f"note: no longer a trial of the plan of sweep {escape(sweep.name)}; its report excludes this run")
    run.write_config(dump_yaml(config))  # last: a config is compared with the changes in run.json


def _note_schedule(before: Config, after: Config, step: int) -> None:
    """Note the learning rates if a decaying schedule gets another end."""
    if step == 0 or after.train.schedule == "constant" or after.total_steps == before.total_steps:
        return
    old, new = (learning_rate(config.train, step) for config in (before, after))
    tell(f"note: the {after.train.schedule} schedule now ends at step {after.total_steps}, not {before.total_steps}:")
    tell(f"  the learning rate at step {step} changes from {old:.3g} to {new:.3g}")
