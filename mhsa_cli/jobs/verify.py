"""Check a run with its config and weights, or all trials of a sweep, for `mhsa verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.estimate import log_every
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import data_file, vocab_size_of
from mhsa_cli.errors import MhsaError, RunError, StorageError, UsageError
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.run_config import check_unedited, own_text, run_config
from mhsa_cli.jobs.sweep.membership import reported_weights, why_not_planned
from mhsa_cli.jobs.sweep.plan import Trial, planned_trials
from mhsa_cli.records.formats import WEIGHTS
from mhsa_cli.records.sweep import DAMAGED, EXCLUDED, UNREAD
from mhsa_cli.records.verify import Check, Verification
from mhsa_cli.runs import hashes
from mhsa_cli.runs.checkpoints import Loaded
from mhsa_cli.runs.listing import CONFIG, RUN, SWEEP, run_argument, trial_folders
from mhsa_cli.runs.metrics_audit import Rhythm
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import DONE, SweepDir
from mhsa_cli.runs.verify import NO_HASHES, Plan, Verifier, state_of
from mhsa_cli.runs.weights_digest import digest_of
from mhsa_cli.text import Head, escape, quoted

NOT_RESUMED = (*UNREAD, "unreadable", "other version")  # statuses of trials that a resumed sweep does not train
NAMED = 5  # trials without a result that a line lists


def verify_sweep(folder: Path) -> Verification:
    """Check a sweep's plan and each of its trials; trials without a result are no damage."""
    sweep, folders, usable, statuses = SweepDir(folder), trial_folders(folder), [], dict[str, str]()
    trials: dict[str, Trial] | None = None
    reported: Mapping[str, str] = {}
    excluded: dict[str, str] = {}
    try:
        plan = sweep.read()
        trials, reported = {trial.name: trial for trial in planned_trials(plan)}, reported_weights(plan)
        state, sealed = ("ok", ", its own hash") if sweep.is_sealed() else ("note", f"; {NO_HASHES}")
        checks = [Check(SWEEP, state, f"{len(plan['cells'])} settings{sealed}")]
    except MhsaError as error:
        checks = [Check(SWEEP, state_of(error), error.message)]
        if folders:
            usable.append(f"its {len(folders)} trials are runs: mhsa explain {run_argument(folders[0])}")
    for path in folders:
        trial = None if trials is None else trials.get(path.name)
        if trials is not None and trial is None:
            checks.append(Check(path.name, "note", "no trial of the plan; the sweep does not read it"))
            continue
        run = RunDir(path)
        found, info = verify_run(run), _info(run) or {}
        status = statuses[path.name] = info.get("status", DAMAGED)
        bad = found.damage or found.other_version or found.unreadable
        if trial is not None and not bad and (why := why_not_planned(sweep, trial, reported.get(path.name))):
            excluded[path.name] = why
            continue
        text = "; ".join(f"{check.name}: {check.found}" for check in bad) or _trial_text(info, found)
        checks.append(Check(path.name, bad[0].state if bad else "ok", text))
        if bad:
            statuses[path.name] = status if status in DONE else {"wrong": DAMAGED}.get(bad[0].state, bad[0].state)
            usable.append(f"parts of this trial: mhsa verify {quoted(path)}")
    for name, trial in (trials or {}).items():  # also paths that are no run folders
        if name not in statuses and (why := why_not_planned(sweep, trial)):
            excluded[name] = why
    resume = f"mhsa sweep --resume {run_argument(folder)}"
    for name, why in excluded.items():
        checks.append(Check(name, "wrong", why))
        statuses[name] = EXCLUDED
        usable.append(f"to train {escape(name)} again: move its folder away, then {resume}")
    if trials is not None and (missing := _missing_text(list(trials), statuses, resume)):
        checks.insert(1, Check("trials", "note", missing))
    return Verification(checks, usable, None)


def _trial_text(info: Mapping[str, Any], found: Verification) -> str:
    message = (info.get("sweep") or {}).get("message")
    step = f" at step {info['step']}" if info.get("step") is not None else ""
    reason = f": {escape(message.partition(chr(10))[0])}" if message else ""
    newest = "no checkpoint yet" if found.checkpoint is None else f"newest checkpoint at step {found.checkpoint}"
    return f"{escape(info['status'])}{step}{reason}; {len(found.checks)} parts, {newest}"


def _missing_text(planned: Sequence[str], statuses: Mapping[str, str], resume: str) -> str:
    """List the planned trials without a result by status; empty if all are finished."""
    by_status: dict[str, list[str]] = {}
    for name in planned:
        by_status.setdefault(statuses.get(name, "missing"), []).append(name)
    finished = len(by_status.pop("finished", ()))
    if not by_status:
        return ""
    parts = [f"{finished} of {len(planned)} finished"]
    for status, names in by_status.items():
        more = f", ... ({len(names)} in all)" if len(names) > NAMED else ""
        parts.append(f"{status}: {', '.join(map(escape, names[:NAMED]))}{more}")
    if by_status.keys() - {*DONE, *NOT_RESUMED}:
        parts.append(f"continue: {resume}")
    return "; ".join(parts)


def verify_run(run: RunDir) -> Verification:
    """Check a run, without torch."""
    info = _info(run)
    try:
        config = run_config(run, compare=info is not None)
    except (RunError, StorageError) as error:
        check = Check(CONFIG, state_of(error), _on_one_line(error))
        return Verifier(run.path, check, None, lambda _: "not compared with the config, which cannot be read").verify()
    return Verifier(run.path, _config_check(run), _plan(config, info or {}), _Fit(run, config, info)).verify()


def _on_one_line(error: MhsaError) -> str:
    """Write an error of a config without its excerpts."""
    text, cause = error.message, error.__cause__
    if isinstance(cause, ConfigError):
        text = text.removesuffix(cause.message) + cause.describe(excerpt=False)
    return " ".join(text.split())


def _info(run: RunDir) -> dict[str, Any] | None:
    try:
        return run.read_run_json()
    except (RunError, StorageError):
        return None


def _config_check(run: RunDir) -> Check:
    try:
        listed = CONFIG in run.listed()
        run.read_config_text()
    except hashes.ChangedError:
        return Check(CONFIG, "note", "its text was edited; all settings are those of the training")
    except (RunError, StorageError):  # run.json is unreadable
        listed = False
    return Check(CONFIG, "ok", "its hash" if listed else "no hash to compare")


def _plan(config: Config, info: Mapping[str, Any]) -> Plan:
    heads = [
        Head(layer, head) for layer in range(config.model.attention_layers) for head in range(config.model.n_heads)
    ]
    # The last resume that changed settings: records before it may have other intervals.
    changed_at = max((change.get("step") or 0 for change in info.get("changes") or ()), default=0)
    rhythm = Rhythm(log_every(config.train), config.train.steps_per_epoch, changed_at)
    return Plan(rhythm, heads, data_file(config.task) is not None, config.train.init is not None)


@dataclass
class _Fit:
    """Compare checkpoints with the model of the config, and the last one with run.json."""

    run: RunDir
    config: Config
    info: Mapping[str, Any] | None

    def __call__(self, loaded: Loaded) -> str:
        from mhsa_cli.core.training.saved_tensors import check_fit
        from mhsa_cli.core.training.state import read_state

        check_unedited(self.config, read_state(loaded.files)["config"], self.run)
        if self.info is None:
            return f"not compared with {RUN}, which cannot be read"
        finite = check_fit(self.config, self.vocab_size, self.config.task.seq_len, loaded.files)
        check_weights(self.run, loaded.step, digest_of(loaded.files[WEIGHTS]))
        fits = "they fit each other" if is_file(self.config.model.attention) else "they fit the config"
        return fits if finite else f"{fits}, but hold NaN or infinity"

    @cached_property
    def vocab_size(self) -> int:
        """The task's number of ids, found once for all checkpoints. Raises: RunError, StorageError."""
        try:
            return vocab_size_of(own_text(self.config, self.run).task)
        except UsageError as error:
            raise RunError(error.message) from error
