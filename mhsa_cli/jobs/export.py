"""Export a run to the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.own_task import is_own
from mhsa_cli.config.schema import Config
from mhsa_cli.core.export import EXPORTS, SINGLE, Source, exported
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.run_config import run_config
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.listing import HEADS, METRICS, SCORES
from mhsa_cli.runs.output_files import check_new, write_new
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import either

if TYPE_CHECKING:
    from mhsa_cli.jobs.trained_run import TrainedRun


def check_format(to: str) -> None:
    """Refuse an unknown format. Raises: UsageError."""
    if to not in EXPORTS:
        raise (
            unwanted("--to", to, either(EXPORTS))
            if to
            else UsageError(f"--to: found no value, wanted {either(EXPORTS)}")
        )


def export_run(folder: RunDir, to: str, output: Path | None, own: OwnCode) -> tuple[Path, list[Path]]:
    """Write a run in a format, to `output` or to a new path named after run and format; returns path and files.

    Raises: UsageError if the path exists, RunError, StorageError.
    """
    path = output or Path(folder.name + SINGLE[to] if to in SINGLE else f"{folder.name}-{to}")
    check_new(path)
    return path, write_new(path, exported(_source(folder, own), to))


def _source(folder: RunDir, own: OwnCode) -> Source:
    """Read a run's data. Its model is loaded by the formats that need it, unless code of the user's is not named."""
    config, info = run_config(folder), folder.read_run_json()
    heads = folder.read_heads() if (folder.path / HEADS).exists() else None
    if heads is not None:
        maps_from_dict(heads)  # raises RunError if it is damaged
    return Source(
        name=folder.name,
        config=config,
        info=info,
        heads=heads,
        metrics=folder.records(METRICS),
        head_scores=folder.records(SCORES),
        trained=lambda: _trained(folder, own),
        checkpoint=_checkpoint(folder) if _is_unnamed(config, own) else None,
    )


def _is_unnamed(config: Config, own: OwnCode) -> bool:
    """Whether a run has code of the user's that may not run here."""
    return (is_file(config.model.attention) and own.attention is None) or (
        is_own(config.task.name) and own.task is None
    )


def _checkpoint(folder: RunDir) -> dict[str, bytes]:
    from mhsa_cli.core.training.checkpoint import digest, weights_of  # imports torch

    loaded = folder.load_checkpoint(for_training=False)
    check_weights(folder, loaded.step, digest(weights_of(loaded.files)))
    return dict(loaded.files)


def _trained(folder: RunDir, own: OwnCode) -> TrainedRun:
    from mhsa_cli.jobs.trained_run import load_trained_run  # imports torch

    return load_trained_run(folder, own)
