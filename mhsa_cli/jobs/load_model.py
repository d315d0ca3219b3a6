"""A run's trained model, compared with what its run.json and its config say of it."""

from __future__ import annotations

from typing import NamedTuple

from mhsa_cli.config.load import Config
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.load import load_trained
from mhsa_cli.jobs.custom_attention import load_block
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import check_unedited, own_text, run_config
from mhsa_cli.runs.run_dir import RunDir


class TrainedRun(NamedTuple):
    """A trained model in eval mode, and the step it was saved at."""

    model: TransformerLM
    task: Task
    config: Config
    step: int


def load_trained_run(folder: RunDir, attention: str | None = None) -> TrainedRun:
    """Load the newest whole checkpoint.

    `attention` names the block of a run that was trained with somebody's own.
    Raises: RunError if none is whole, it is of another training, or the config was edited since; UsageError if that
    block is not named.
    """
    config = own_text(run_config(folder), folder)
    custom = load_block(config, folder.read_run_json(), attention, who=folder.name)
    step, files, notes = folder.load_checkpoint(for_training=False)
    for note in notes:
        tell(f"note: {note}")
    task = build_task(config.task)
    model = load_trained(config, task, files, lambda settings: check_unedited(config, settings, folder), custom)
    check_weights(folder, step, weights_sha256(model))
    return TrainedRun(model, task, config, step)
