"""What `mhsa verify` looks at: a run with its config and weights, or all trials of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import Text
from mhsa_cli.errors import MhsaError, RunError, StorageError, UsageError
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.run_config import check_unedited, own_text, run_config
from mhsa_cli.jobs.sweep.membership import reported_weights, why_not_planned
from mhsa_cli.jobs.sweep.plan import Trial, planned_trials
from mhsa_cli.records.sweep import DAMAGED, EXCLUDED, UNREAD
from mhsa_cli.records.verify import Check, Verification
from mhsa_cli.runs import hashes
from mhsa_cli.runs.checkpoints import Loaded
from mhsa_cli.runs.listing import CONFIG, RUN, SWEEP, run_argument, trial_folders
from mhsa_cli.runs.metrics_audit import Rhythm
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import DONE, SweepDir
from mhsa_cli.runs.verify import NO_HASHES, Plan, Verifier, state_of
from mhsa_cli.text import Head, escape, quoted

HELD_UP = (*UNREAD, "unreadable", "other version")  # what a resume does not train
NAMED = 5  # trials without a result that a line names


def verify_sweep(folder: Path) -> Verification:
    """Check a sweep's plan and each of its trials, a line for each; trials without a result are no damage."""
    sweep, folders, usable, statuses = SweepDir(folder), trial_folders(folder), [], dict[str, str]()
    trials: dict[str, Trial] | None = None
    reported: Mapping[str, str] = {}
    strangers: dict[str, str] = {}
    try:
        plan = sweep.read()
        trials, reported = {trial.name: trial for trial in planned_trials(plan)}, reported_weights(plan)
        state, known = ("ok", ", its own hash") if sweep.is_sealed() else ("note", f"; {NO_HASHES}")
        checks = [Check(SWEEP, state, f"{len(plan['cells'])} settings{known}")]
    except MhsaError as error:
        checks = [Check(SWEEP, state_of(error), error.message)]
        if folders:
            usable.append(f"its {len(folders)} trials are runs of their own: mhsa explain {run_argument(folders[0])}")
    for path in folders:
        trial = None if trials is None else trials.get(path.name)
        if trials is not None and trial is None:
            checks.append(Check(path.name, "note", "no trial of the plan; the sweep does not read it"))
            continue
        run = RunDir(path)
        found, info = verify_run(run), _info(run) or {}
        status = statuses[path.name] = info.get("status", DAMAGED)
        bad = found.damage or found.other_version or found.unreadable
        if trial is not None and not bad and (other := why_not_planned(sweep, trial, reported.get(path.name))):
            strangers[path.name] = other
            continue
        told = "; ".join(f"{check.name}: {check.found}" for check in bad) or _standing(info, found)
        checks.append(Check(path.name, bad[0].state if bad else "ok", told))
        if bad:
            statuses[path.name] = status if status in DONE else {"wrong": DAMAGED}.get(bad[0].state, bad[0].state)
            usable.append(f"what the trial still holds: mhsa verify {quoted(path)}")
    for name, trial in (trials or {}).items():  # what is no run folder, too
        if name not in statuses and (other := why_not_planned(sweep, trial)):
            strangers[name] = other
    for name, other in strangers.items():
        checks.append(Check(name, "wrong", other))
        statuses[name] = EXCLUDED
        usable.append(f"to train {escape(name)} anew: move its folder away, then {_going_on(folder)}")
    if trials is not None and (left := _left(folder, list(trials), statuses)):
        checks.insert(1, Check("trials", "note", left))
    return Verification(checks, usable, None)


def _going_on(folder: Path) -> str:
    """Give the command that trains what a sweep has no result of."""
    return f"mhsa sweep --resume {run_argument(folder)}"


def _standing(info: Mapping[str, Any], found: Verification) -> str:
    """Say how a whole trial ended, and what it has."""
    message = (info.get("sweep") or {}).get("message")
    at = f" at step {info['step']}" if info.get("step") is not None else ""
    told = f"{escape(info['status'])}{at}" + (f": {escape(message.partition(chr(10))[0])}" if message else "")
    newest = "no checkpoint yet" if found.checkpoint is None else f"the newest checkpoint of step {found.checkpoint}"
    return f"{told}; {len(found.checks)} parts, {newest}"


def _left(folder: Path, planned: Sequence[str], statuses: Mapping[str, str]) -> str:
    """Say which planned trials have no result; nothing if all are finished."""
    kinds: dict[str, list[str]] = {}
    for name in planned:
        kinds.setdefault(statuses.get(name, "missing"), []).append(name)
    finished = len(kinds.pop("finished", ()))
    if not kinds:
        return ""
    told = [f"{finished} of {len(planned)} finished"]
    for kind, names in kinds.items():
        more = f", ... ({len(names)} in all)" if len(names) > NAMED else ""
        told.append(f"{kind}: {', '.join(map(escape, names[:NAMED]))}{more}")
    if kinds.keys() - {*DONE, *HELD_UP}:
        told.append(f"to go on: {_going_on(folder)}")
    return "; ".join(told)


def verify_run(run: RunDir) -> Verification:
    """Check a run; torch is loaded for its weights alone."""
    info = _info(run)
    try:
        config = run_config(run, compare=info is not None)
    except (RunError, StorageError) as error:
        check = Check(CONFIG, state_of(error), _on_one_line(error))
        return Verifier(run.path, check, None, lambda _: "not compared with the config, which cannot be read").verify()
    return Verifier(run.path, _config_check(run), _plan(config, info or {}), _Fit(run, config, info)).verify()


def _on_one_line(error: MhsaError) -> str:
    """Say what is wrong with a config without the excerpts, whose carets say nothing where lines are set anew."""
    told, cause = error.message, error.__cause__
    if isinstance(cause, ConfigError):
        told = told.removesuffix(cause.message) + cause.describe(excerpt=False)
    return " ".join(told.split())


def _info(run: RunDir) -> dict[str, Any] | None:
    """Read run.json; None if it cannot be read."""
    try:
        return run.read_run_json()
    except (RunError, StorageError):
        return None


def _config_check(run: RunDir) -> Check:
    """Say what of a config that could be read was compared."""
    try:
        listed = CONFIG in run.listed()
        run.read_config_text()
    except hashes.ChangedError:
        return Check(CONFIG, "note", "its text was edited; all settings are those of the training")
    except (RunError, StorageError):  # run.json tells nothing
        listed = False
    return Check(CONFIG, "ok", "its hash" if listed else "no hash to compare")


def _plan(config: Config, info: Mapping[str, Any]) -> Plan:
    """Say what a run's config and its run.json say of its files."""
    from mhsa_cli.core.training.lockstep import log_every

    heads = [Head(layer, head) for layer in range(config.model.n_layers) for head in range(config.model.n_heads)]
    rhythm = Rhythm(log_every(config.train), config.train.steps_per_epoch, _changed_at(info))
    return Plan(rhythm, heads, isinstance(config.task, Text))


def _changed_at(info: Mapping[str, Any]) -> int:
    """Find the last step at which a resume changed a setting: before it, lines may have another rhythm."""
    return max((change.get("step") or 0 for change in info.get("changes") or ()), default=0)


@dataclass
class _Fit:
    """Puts checkpoints into the model of a config and compares what run.json says of the last one."""

    run: RunDir
    config: Config
    info: Mapping[str, Any] | None

    def __call__(self, loaded: Loaded) -> str:
        from mhsa_cli.core.training.checkpoint import read_state
        from mhsa_cli.core.training.load import check_fit

        check_unedited(self.config, read_state(loaded.files)["config"], self.run)
        if self.info is None:
            return f"not compared with {RUN}, which cannot be read"
        digest, finite = check_fit(self.config, self.task, loaded.files)
        check_weights(self.run, loaded.step, digest)
        # Somebody's own block is not built here: that would run its file.
        fits = "they fit each other" if is_file(self.config.model.attention) else "they fit the config"
        return fits if finite else f"{fits}, but hold NaN or infinity"

    @cached_property
    def task(self) -> Any:
        """The task, built once for all checkpoints. Raises: RunError, StorageError."""
        from mhsa_cli.core.tasks import build_task

        try:
            return build_task(own_text(self.config, self.run).task)
        except UsageError as error:
            raise RunError(error.message) from error
