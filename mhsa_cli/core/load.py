"""A trained model back from its checkpoint's bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mhsa_cli.config.schema import Config
from mhsa_cli.core.checkpoint import load_weights, read_state
from mhsa_cli.core.engine import build_model
from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.tasks import Task


def load_trained(
    config: Config, task: Task, files: Mapping[str, bytes], check: Callable[[Mapping[str, Any]], None]
) -> TransformerLM:
    """Rebuild a run's model in eval mode; `check` is shown the settings that its checkpoint was trained with first.

    Raises: RunError if the checkpoint does not fit the config, and whatever `check` raises.
    """
    check(read_state(files)["config"])
    return load_weights(build_model(config, task), files)
