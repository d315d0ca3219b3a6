"""The limits of untrained heads, measured once in a process for each task and shape."""

from __future__ import annotations

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.schema import Config
from mhsa_cli.core.heads.random_baseline import Limits, null_limits
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.own import OwnTask

_kept: dict[tuple[object, ...], Limits] = {}


def untrained_limits(config: Config, task: Task, model: TransformerLM) -> Limits:
    """Return the `null_limits` of a run's task and shape.

    Those of a task, data or attention from a file are measured at each call: the file may have changed.
    """
    if isinstance(task, OwnTask) or task.holds_back or is_file(config.model.attention):
        return null_limits(model, task)
    key = (config.task, config.model, config.train.dtype)
    if key not in _kept:
        _kept[key] = null_limits(model, task)
    return _kept[key]
