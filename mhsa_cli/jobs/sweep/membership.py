"""Whether a trial's folder holds the training that its sweep planned: a folder's name proves nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.errors import OtherVersionError, RunError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import ELSEWHERE, differences, edited, stated_config
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.runs.checkpoints import STATE
from mhsa_cli.runs.disk import read_file
from mhsa_cli.runs.json_file import parse_json
from mhsa_cli.runs.listing import WEIGHTS, run_argument
from mhsa_cli.runs.run_dir import RunDir, refuse_newer
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.runs.verify import OWN
from mhsa_cli.text import escape

# Settings that a trial may change and still be the plan's: they change neither a figure nor a step of the report.
UNSEEN = {"train.eval_every", "train.save_every", "train.keep"}
_STATE_LIMIT = 1 << 20
_NAMED = 3  # strange files that a line names


def reported_weights(plan: Mapping[str, Any]) -> dict[str, str]:
    """Read from a sweep.json with a report the digest of each finished trial's weights, by the trial's name."""
    return {name: digest for name, row in _rows(plan).items() if (digest := row.get(WEIGHTS)) is not None}


def forget_weights(plan: Mapping[str, Any], names: Set[str]) -> bool:
    """Take the digests of trials that are trained anew out of a report; tells whether it held any."""
    held = names & reported_weights(plan).keys()
    for name in held:
        _rows(plan)[name][WEIGHTS] = None
    return bool(held)


def _rows(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    rows = (plan.get("report") or {}).get("runs") or ()
    return {Path(row["run"]).name: row for row in rows if row.get("run") is not None}


def find_left_out(sweep: SweepDir, plan: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, str]:
    """Find the folders that hold another training than the plan's, by name with the reason, and say so of each."""
    reported = reported_weights(plan)
    reasons = {trial.name: why_not_planned(sweep, trial, reported.get(trial.name)) for trial in trials}
    found = {name: why for name, why in reasons.items() if why is not None}
    for name, why in found.items():
        tell(f"left out: {escape(str(sweep.path / name))}: {why}")
    if found:
        tell(f"  to train them anew: move their folders away, then mhsa sweep --resume {run_argument(sweep.path)}")
    return found


def why_not_planned(sweep: SweepDir, trial: Trial, weights: str | None = None) -> str | None:
    """Say why a trial's folder holds another training than the plan's; None if it holds that one, or none to speak of.

    Its config, its checkpoints, its run.json and, once `weights` were reported, their digest must be the plan's; and
    what would be trained anew must hold nothing else, for its folder is then emptied.
    Raises: OtherVersionError, StorageError.
    """
    run = RunDir(sweep.path / trial.name)
    if not os.path.lexists(run.path):
        return None
    if not run.path.is_dir():
        return "it is no folder"
    return next(_reasons(sweep, run, trial, weights), None)


def _reasons(sweep: SweepDir, run: RunDir, trial: Trial, weights: str | None) -> Iterator[str]:
    info, done = sweep.info(trial.name), sweep.is_done(trial.name)
    try:
        is_as_written = run.read_config_text(compare=False) == dump_yaml(trial.config)  # then it need not be parsed
        config = trial.config if is_as_written else stated_config(run)
    except OtherVersionError:
        raise
    except RunError:
        config = trial.config  # damage is told elsewhere; the checkpoints say as much
    if changed := differences(trial.config, config, UNSEEN):
        yield f"its config is not the plan's: {'; '.join(changed)}"
    told = {"seed": info.get("seed"), **(info.get("sweep") or {})}
    for key, wanted in (("seed", trial.config.train.seed), ("cell", trial.cell)):
        if told.get(key) not in (None, wanted):
            yield f"its run.json is of another trial: {key} {told[key]}, not {wanted}"
    if weights is not None and info.get("status") == "finished" and info.get(WEIGHTS) != weights:
        yield f"its weights are not those of the sweep's report: sha256 {escape(str(info.get(WEIGHTS)))}, not {weights}"
    yield from _checkpoint_reasons(run, trial)
    if not done:  # it will be gone on with, or trained anew
        refuse_newer(run.path)
        strange = sorted(p.name for p in run.path.iterdir() if p.name not in OWN and not p.name.startswith("."))
        if strange:
            more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
            yield f"it holds what is no part of a trial: {', '.join(map(escape, strange[:_NAMED]))}{more}"


def _checkpoint_reasons(run: RunDir, trial: Trial) -> Iterator[str]:
    """Say what of its checkpoints is not the plan's; those that cannot be read are damage."""
    try:
        saved = run.checkpoints()
    except RunError:
        return
    for step, path in saved:
        try:
            state = parse_json(read_file(path / STATE, _STATE_LIMIT), path / STATE)
            same = state["config"] == trial.config.to_dict()
            changed = [] if same else edited(trial.config, state["config"], UNSEEN | ELSEWHERE)
        except OtherVersionError:
            raise
        except (RunError, KeyError, TypeError, ValueError):
            continue
        if changed or step > trial.config.total_steps:
            beyond = f"it is beyond step {trial.config.total_steps}, the plan's last"
            yield f"its checkpoint of step {step} is of another training: {'; '.join(changed) or beyond}"
