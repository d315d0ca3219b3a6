"""Whether a trial's folder holds the training of its sweep's plan; its name alone proves nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.errors import OtherVersionError, RunError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import ELSEWHERE, differences, edited, read_config
from mhsa_cli.jobs.sweep.plan import Trial
from mhsa_cli.records.formats import STATE
from mhsa_cli.runs.disk import read_file
from mhsa_cli.runs.json_file import parse_json
from mhsa_cli.runs.listing import WEIGHTS, run_argument
from mhsa_cli.runs.run_dir import RunDir, refuse_newer
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.runs.verify import OWN
from mhsa_cli.text import escape

# Settings that a trial may change and still belong to the plan: they affect no result in the report.
UNREPORTED = {"train.save_every", "train.keep"}
_STATE_LIMIT = 1 << 20
_NAMED = 3  # unknown files that a line lists


def reported_weights(plan: Mapping[str, Any]) -> dict[str, str]:
    """Map each finished trial in a reported sweep.json to the digest of its weights."""
    return {name: digest for name, row in _rows(plan).items() if (digest := row.get(WEIGHTS)) is not None}


def forget_weights(plan: Mapping[str, Any], names: Set[str]) -> bool:
    """Remove the digests of trials that are trained again from a report; returns whether it held any."""
    held = names & reported_weights(plan).keys()
    for name in held:
        _rows(plan)[name][WEIGHTS] = None
    return bool(held)


def _rows(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    rows = (plan.get("report") or {}).get("runs") or ()
    return {Path(row["run"]).name: row for row in rows if row.get("run") is not None}


def find_excluded(sweep: SweepDir, plan: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, str]:
    """Find the trials whose folder holds another training, by name with the reason, and print them."""
    reported = reported_weights(plan)
    reasons = {trial.name: why_not_planned(sweep, trial, reported.get(trial.name)) for trial in trials}
    excluded = {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in excluded.items():
        tell(f"excluded: {escape(sweep.path / name)}: {reason}")
    if excluded:
        tell(f"  to train them again: move their folders away, then mhsa sweep --resume {run_argument(sweep.path)}")
    return excluded


def why_not_planned(sweep: SweepDir, trial: Trial, weights: str | None = None) -> str | None:
    """Return why a trial's folder does not belong to the plan; None if it does or is missing.

    Config, checkpoints, run.json and, if reported, the digest of its weights must be the plan's. A trial without a
    result must hold no other files, as its folder may be emptied. Raises: OtherVersionError, StorageError.
    """
    run = RunDir(sweep.path / trial.name)
    if not os.path.lexists(run.path):
        return None
    if not run.path.is_dir():
        return "it is not a folder"
    return next(_reasons(sweep, run, trial, weights), None)


def _reasons(sweep: SweepDir, run: RunDir, trial: Trial, weights: str | None) -> Iterator[str]:
    info, done = sweep.info(trial.name), sweep.is_done(trial.name)
    try:
        is_as_written = run.read_config_text(compare=False) == dump_yaml(trial.config)  # no need to parse it
        config = trial.config if is_as_written else read_config(run)[0]
    except OtherVersionError:
        raise
    except RunError:
        config = trial.config  # damage is reported elsewhere; the checkpoints hold the config too
    if changed := differences(trial.config, config, UNREPORTED):
        yield f"its config is not the plan's: {'; '.join(changed)}"
    recorded = {"seed": info.get("seed"), **(info.get("sweep") or {})}
    for key, wanted in (("seed", trial.config.train.seed), ("cell", trial.cell)):
        if recorded.get(key) not in (None, wanted):
            yield f"its run.json is of another trial: found {key} {recorded[key]}, wanted {wanted}"
    if weights is not None and info.get("status") == "finished" and info.get(WEIGHTS) != weights:
        digest = escape(str(info.get(WEIGHTS)))
        yield f"its weights are not those in the sweep's report: found sha256 {digest}, wanted {weights}"
    yield from _checkpoint_reasons(run, trial)
    if not done:  # it will be resumed or trained again
        refuse_newer(run.path)
        unknown = sorted(p.name for p in run.path.iterdir() if p.name not in OWN and not p.name.startswith("."))
        if unknown:
            more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
            yield f"it holds files of no trial: {', '.join(map(escape, unknown[:_NAMED]))}{more}"


def _checkpoint_reasons(run: RunDir, trial: Trial) -> Iterator[str]:
    """Yield the checkpoints that are not the plan's; unreadable ones are reported as damage elsewhere."""
    try:
        saved = run.checkpoints()
    except RunError:
        return
    for step, path in saved:
        try:
            state = parse_json(read_file(path / STATE, _STATE_LIMIT), path / STATE)
            same = state["config"] == trial.config.to_dict()
            changed = [] if same else edited(trial.config, state["config"], UNREPORTED | ELSEWHERE)
        except OtherVersionError:
            raise
        except (RunError, KeyError, TypeError, ValueError):
            continue
        if changed or step > trial.config.total_steps:
            beyond = f"the plan ends at step {trial.config.total_steps}"
            yield f"its checkpoint of step {step} is of another training: {'; '.join(changed) or beyond}"
