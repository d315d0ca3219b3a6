"""state.json of a checkpoint: its step, seed and config, and what a training waited for. Without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mhsa_cli.core.training.early_stop import Waiting
from mhsa_cli.errors import UPDATE, NewerFormatError, RunError
from mhsa_cli.records.formats import FORMAT, STATE

WAITING = "waiting"  # in state.json, for train.patience; older versions have none


def read_state(files: Mapping[str, bytes], step: int | None = None) -> dict[str, Any]:
    """Read a checkpoint's step, seed, epoch_loss_sum and config; the step must be `step` if given.

    Raises: RunError if a value is missing or has another type, NewerFormatError for a format of a newer mhsa.
    """
    try:
        state = json.loads(files[STATE])
        found = state["format"]
        if type(found) is int and found > FORMAT:
            why = f"the checkpoint was made by a newer mhsa (format {found!r:.40}, this one reads up to {FORMAT})"
            raise NewerFormatError(why, UPDATE)
        at, seed, loss, config = (state[key] for key in ("step", "seed", "epoch_loss_sum", "config"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise RunError(f"the checkpoint's state.json lacks what a resume needs ({error!s:.80})") from error
    if type(found) is not int or not 1 <= found <= FORMAT:  # JSON's true equals 1
        raise RunError(f"the checkpoint has the unknown format number {found!r:.40}: expected 1 to {FORMAT}")
    valid = {
        "step": type(at) is int and 0 <= at < 1 << 63 and step in (None, at),
        "seed": type(seed) is int and 0 <= seed < 1 << 63,
        "epoch_loss_sum": type(loss) is float or (type(loss) is int and abs(loss) < 1 << 63),
        "config": isinstance(config, dict) and all(isinstance(part, dict) for part in config.values()),
    }
    for key, is_valid in valid.items():
        if not is_valid:
            expected = step if key == "step" and step is not None else "a training's value"
            raise RunError(f"the checkpoint's state.json is damaged: {key} is {state[key]!r:.40}, expected {expected}")
    return dict(state)


def read_waiting(files: Mapping[str, bytes]) -> Waiting:
    """Read what a training waited for at a checkpoint; of an older version it begins there. Raises: RunError."""
    found = json.loads(files[STATE]).get(WAITING, [0, None, 0])
    match found:
        case [int(step), float() | int() | None as best, int(evaluations)] if min(step, evaluations) >= 0:
            return Waiting(step, math.inf if best is None else float(best), evaluations)
    raise RunError(f"the checkpoint's state.json is damaged: {WAITING} is {found!r:.40}")
