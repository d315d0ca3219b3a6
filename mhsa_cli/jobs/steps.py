"""The step of `--step`: a number, or the best, first or last checkpoint of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from mhsa_cli.errors import RunError, unwanted
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.training import EvalRecord
from mhsa_cli.runs.listing import METRICS, final_figures
from mhsa_cli.runs.metrics import records_of
from mhsa_cli.runs.run_dir import RunDir

BEST, FIRST, LAST = "best", "first", "last"
_LISTED = 8  # steps named in a message; of more, the first and the last
_KEEP_MORE = "a training keeps more with train.keep=N, and saves more often with train.save_every=N"


def check_step(given: str) -> str:
    """Return the value of `--step` if it is one. Raises: UsageError."""
    if given not in (BEST, FIRST, LAST) and not re.fullmatch("[0-9]{1,18}", given, re.ASCII):
        raise unwanted("--step", given, "a step such as 240, or best, first or last")
    return given


def find_step(folder: RunDir, given: str | None) -> int | None:
    """Find the step that `--step` names; None is that of the newest whole checkpoint. Step 0 needs no checkpoint.

    Raises: RunError if no checkpoint of that step is kept, or none of them was evaluated.
    """
    if given is None or given == LAST:
        return None
    kept = sorted({item.step for item in folder.checkpoints()})
    if not kept:
        raise RunError((folder.path, " has no checkpoint"), code="no-checkpoint")
    if given == FIRST:
        return kept[0]
    if given == BEST:
        return _best(folder, kept)
    step = int(given)
    if step and step not in kept:
        hint = f"kept: {_listed(kept)}; step 0, untrained, needs none\n  {_KEEP_MORE}"
        raise RunError((folder.path, f" has no checkpoint of step {step}"), hint, "no-checkpoint")
    return step


def evaluations(folder: RunDir) -> dict[int, EvalRecord]:
    """Map the steps of a run that were evaluated to their losses and accuracies; a stopped run's last one too."""
    found = {one.step: one for one in records_of(folder.records(METRICS)) if isinstance(one, EvalRecord)}
    final = final_figures(folder.read_run_json())
    if {"step", "eval_loss", "eval_accuracy"} <= final.keys():
        found.setdefault(final["step"], EvalRecord(final["step"], final["eval_loss"], final["eval_accuracy"]))
    return found


def _best(folder: RunDir, kept: Sequence[int]) -> int:
    """Return the kept step of the lowest evaluation loss, the earliest of equal ones; the others are named."""
    losses = {step: one.loss for step, one in evaluations(folder).items() if step in kept and math.isfinite(one.loss)}
    if not losses:
        message = f" has no evaluation loss at a checkpoint (kept: {_listed(kept)})"
        hint = "name a step: --step N; a training evaluates where it saves with train.eval_every=N train.save_every=N"
        raise RunError((folder.path, message), hint, "no-evaluation")
    without = [step for step in kept if step not in losses]
    if without:
        tell(f"note: best of the steps {_listed(sorted(losses))}; no evaluation loss at {_listed(without)}")
    return min(losses, key=lambda step: (losses[step], step))


def step_option(step: int | None) -> str:
    """Return the option that names a step in a further command; nothing for the newest."""
    return "" if step is None else f" --step {step}"


def _listed(steps: Sequence[int]) -> str:
    texts = [str(step) for step in steps]
    if len(texts) > _LISTED:
        texts = [*texts[: _LISTED - 1], "...", texts[-1]]
    return ", ".join(texts)
