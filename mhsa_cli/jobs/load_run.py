"""Finding a run that a command is about, and what must be known of it before anything of it is shown."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mhsa_cli.errors import MhsaError, RunError
from mhsa_cli.runs.checkpoints import list_checkpoints
from mhsa_cli.runs.disk import verify_hint
from mhsa_cli.runs.listing import CONFIG, HEADS, RUN, WEIGHTS, run_argument
from mhsa_cli.runs.names import NEWEST, runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape, quoted


def open_run(runs: Path | None, name: str | None) -> RunDir:
    """Open a run for reading, by its name or path; None is the newest. Raises: RunError."""
    root = runs_root(runs)
    return RunDir.open(root, NEWEST if name is None else name)


def next_look(path: Path) -> str:
    """Give the command that shows the heads of a run; of one that kept nothing, the command that trains it again."""
    with contextlib.suppress(MhsaError):  # what is wrong with its checkpoints, verify says
        if (path / HEADS).exists() or list_checkpoints(path):
            return f"mhsa inspect-heads {run_argument(path)}"
        if (path / CONFIG).exists():
            return f"mhsa train --config {quoted(path / CONFIG)}"
    return f"mhsa verify {run_argument(path)}"


def check_weights(folder: RunDir, step: int, sha256: str) -> None:
    """Refuse a checkpoint of the step a run ended at, if `sha256` of its weights is not what run.json tells of them."""
    info = folder.read_run_json()
    told = info.get(WEIGHTS)
    if told is not None and info.get("step") == step and told != sha256:
        said = f"the checkpoint of step {step} is of another training: its weights are not those of {RUN}"
        raise RunError(f"{said}: sha256 {sha256}, not {escape(str(told))}", verify_hint(folder.path))
