"""Changes of a run's task, for rows that its training did not have: settings of the task alone, each with a list."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from mhsa_cli.config.axes import read_axes
from mhsa_cli.config.load import check
from mhsa_cli.config.overrides import Override, put, split_values
from mhsa_cli.config.own_task import OwnTask
from mhsa_cli.config.problems import ConfigError, Source
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import DATA_FILES, TaskConfig
from mhsa_cli.config.yaml_events import Document
from mhsa_cli.errors import UsageError

MOST = 1000  # tasks of a table
# What says which id is which symbol: other rows would be written in another vocabulary.
FIXED = {"task.name", *(f"task.{key}" for key in DATA_FILES.values())}
OF_TRAINING = {"task.loss_on", "task.period_per"}  # held-out rows are drawn and scored alike with each of them


def changed_tasks(config: Config, changes: Sequence[str]) -> list[tuple[dict[str, Any], TaskConfig | OwnTask]]:
    """Expand lists and ranges of values: each combination's settings and task, the last key varying fastest.

    Raises: UsageError for what is no setting of the task, ConfigError for values that it cannot have.
    """
    own = config.to_dict()["task"]
    texts = [f"task.{text}" if text.partition("=")[0].strip() in own else text for text in changes]
    axes, problems = read_axes([(text, split_values(text.partition("=")[2])) for text in texts])
    if problems:
        raise ConfigError(problems)
    for key, axis in axes.items():
        why = _refusal(key)
        if why is not None:
            way = f"train another run: mhsa train {key}={axis.values[0][0]}"
            raise UsageError(f"`{key}` {why}: only rows change when a run is evaluated", way, "no-task-setting")
    found: list[tuple[dict[str, Any], TaskConfig | OwnTask]] = []
    for chosen in itertools.islice(itertools.product(*(axis.values for axis in axes.values())), MOST + 1):
        overrides = [override for _, override in chosen]
        found.append(({one.path[-1]: one.value.data for one in overrides}, _task(config, overrides)))
    if len(found) > MOST:
        raise UsageError(f"found more than {MOST:,} combinations of settings, wanted fewer", "use fewer values")
    return found if axes else []


def _refusal(key: str) -> str | None:
    """Say why a setting cannot be changed; None if it can."""
    if key in OF_TRAINING:
        return "changes training alone"
    if key in FIXED:
        return "decides what the ids mean"
    return None if key.startswith("task.") else "is no setting of the task"


def _task(config: Config, overrides: Sequence[Override]) -> TaskConfig | OwnTask:
    """Check a changed task beside a model that takes rows of any length: the run's may, though it was not trained."""
    plain = config.to_dict()
    model: dict[str, Any] = {**plain["model"], "max_seq_len": None, "attention": "softmax", "positions": "none"}
    document = Document(Source("config.yaml"), {"task": plain["task"], "model": model, "train": {}})
    for override in overrides:
        put(document, override)
    return check(document, files=False).task
