"""Open the run of a command, and check its weights before results are shown."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from mhsa_cli.errors import MhsaError, RunError, UsageError
from mhsa_cli.runs.checkpoints import list_checkpoints
from mhsa_cli.runs.disk import verify_hint
from mhsa_cli.runs.listing import A_SWEEP, CONFIG, HEADS, RUN, WEIGHTS, origin_of, run_argument, trial_folders
from mhsa_cli.runs.names import NEWEST, runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape, from_file, quoted


def open_run(runs: Path | None, name: str | None) -> RunDir:
    """Open a run for reading, by name or path; None is the newest. Raises: RunError."""
    root = runs_root(runs)
    return RunDir.open(root, NEWEST if name is None else name)


def open_run_or_sweep(runs: Path | None, name: str | None) -> RunDir | SweepDir:
    """Open a run for reading, or a sweep, by name or path; None is the newest run. Raises: RunError."""
    try:
        return open_run(runs, name)
    except RunError as error:
        if error.code != A_SWEEP or name is None:
            raise
        return SweepDir.open(runs_root(runs), name)


def refuse_options(sweep: SweepDir, command: str, given: Mapping[str, object]) -> None:
    """Refuse what a command does with one model only; `given` are options with their values, None or False by default.

    Raises: UsageError that names a trial.
    """
    for option, value in given.items():
        if value is not None and value is not False:
            message = f"{option} is for one run: {escape(sweep.name)} is a sweep"
            values = value if isinstance(value, list) else [value]
            again = " ".join(option if one is True else f"{option} {quoted(str(one))}" for one in values)
            raise UsageError(message, f"its trials are runs: mhsa {command} {trial_argument(sweep)} {again}", A_SWEEP)


def refuse_origin(folder: RunDir, what: str) -> None:
    """Refuse what only a training has, where the model was made elsewhere. Raises: UsageError."""
    if (origin := origin_of(folder.read_run_json())) is not None:
        message = f"{escape(folder.name)} is {from_file(origin)}: it has no steps for {what}"
        raise UsageError(message, f"its heads: mhsa explain {run_argument(folder.path)}", "no-steps")


def trial_argument(sweep: SweepDir) -> str:
    """Return the name of a sweep's first trial for a command line."""
    trials = trial_folders(sweep.path)
    return run_argument(trials[0]) if trials else f"{run_argument(sweep.path)}/TRIAL"


def next_look(path: Path) -> str:
    """Return the command to run next: show the heads, or train again if nothing was saved, or verify."""
    with contextlib.suppress(MhsaError):  # damaged checkpoints are reported by verify
        if (path / HEADS).exists() or list_checkpoints(path):
            return f"mhsa inspect-heads {run_argument(path)}"
        if (path / CONFIG).exists():
            return f"mhsa train --config {quoted(path / CONFIG)}"
    return f"mhsa verify {run_argument(path)}"


def check_weights(folder: RunDir, step: int, sha256: str) -> None:
    """Compare the weights of a run's last checkpoint with the digest in run.json. Raises: RunError."""
    info = folder.read_run_json()
    recorded = info.get(WEIGHTS)
    if recorded is not None and info.get("step") == step and recorded != sha256:
        digests = f"found sha256 {sha256}, wanted {escape(str(recorded))} as in {RUN}"
        raise RunError(f"the checkpoint of step {step} is of another training: {digests}", verify_hint(folder.path))
