"""Export a run to the formats of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.own_task import is_own, recorded_digest, trusted_task
from mhsa_cli.config.schema import Config
from mhsa_cli.core.export import EXPORTS, SINGLE, Source, exported
from mhsa_cli.core.export.plain import Trials, trials_to_csv, trials_to_json
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.load_heads import measured_maps, without_maps
from mhsa_cli.jobs.load_run import check_weights, trial_argument
from mhsa_cli.jobs.run_config import run_config
from mhsa_cli.records.sweep import UNREAD, SweepReport
from mhsa_cli.runs.heads import maps_from_dict, maps_to_dict
from mhsa_cli.runs.listing import A_SWEEP, HEADS, METRICS, RUN, SCORES
from mhsa_cli.runs.output_files import check_new, write_new
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir, Words, report_document, report_table
from mhsa_cli.text import either, escape

if TYPE_CHECKING:
    from mhsa_cli.jobs.trained_run import TrainedRun


MEASURED = ("csv", "json")  # formats that hold what was measured of the heads, and no weights


def check_format(to: str) -> None:
    """Refuse an unknown format. Raises: UsageError."""
    if to not in EXPORTS:
        raise (
            unwanted("--to", to, either(EXPORTS))
            if to
            else UsageError(f"--to: found no value, wanted {either(EXPORTS)}")
        )


def export_run(
    folder: RunDir, to: str, output: Path | None, own: OwnCode, step: int | None = None
) -> tuple[Path, list[Path]]:
    """Write a run in a format, to `output` or to a new path named after run and format; returns path and files.

    Weights and heads are those of `step`, by default of the end. Raises: UsageError if the path exists or the format
    has no step, RunError, StorageError.
    """
    if step is not None and to == "tensorboard":
        raise UsageError("--step: a TensorBoard log holds the whole training", "remove --step")
    name = folder.name if step is None else f"{folder.name}-step-{step}"
    path = output or Path(name + SINGLE[to] if to in SINGLE else f"{name}-{to}")
    check_new(path)
    return path, write_new(path, exported(_source(folder, to, own, step), to))


def export_sweep(
    sweep: SweepDir, report: SweepReport, to: str, output: Path | None, words: Words
) -> tuple[Path, list[Path]]:
    """Write all trials of a sweep that can be read: as CSV their results, metrics and heads; or one JSON document.

    `words` puts a comparison into words. Raises: UsageError for other formats, or if the path exists, RunError,
    StorageError.
    """
    if to not in MEASURED:
        trial = trial_argument(sweep)
        hint = f"a trial: mhsa export {trial} --to {to}; all trials: --to {either(MEASURED)}"
        raise UsageError(f"--to {to} is for one run: {escape(sweep.name)} is a sweep", hint, A_SWEEP)
    path = output or Path(sweep.name + SINGLE[to] if to in SINGLE else f"{sweep.name}-{to}")
    check_new(path)
    read = [trial for trial in report.trials if trial.status not in UNREAD and (Path(trial.run) / RUN).exists()]

    def sources() -> Iterator[tuple[Mapping[str, Any], Source]]:
        for trial in read:
            folder = RunDir.open(sweep.path, Path(trial.run))
            keys = {"run": trial.run, **report.groups[trial.cell].overrides, "seed": trial.seed}
            yield keys, _source(folder, to, OwnCode(), None)

    trials = Trials(sources)
    if to == "csv":
        return path, write_new(path, {"trials.csv": report_table(report), **trials_to_csv(trials)})
    document = {"sweep": str(sweep.path), "report": report_document(report, words)}
    return path, write_new(path, trials_to_json(document, trials))


def _source(folder: RunDir, to: str, own: OwnCode, step: int | None) -> Source:
    """Read a run's data. Its model is loaded by the formats that need it, unless code of the user's is not named."""
    config, info = run_config(folder), folder.read_run_json()
    unnamed = _is_unnamed(config, info, own)
    if step is None:
        heads = folder.read_heads() if (folder.path / HEADS).exists() else None
        if heads is not None:
            maps_from_dict(heads)  # raises RunError if it is damaged
    else:
        heads = _heads(folder, own, step) if to in MEASURED else None
    return Source(
        name=folder.name,
        config=config,
        info=info,
        heads=heads,
        metrics=folder.records(METRICS),
        head_scores=folder.records(SCORES),
        trained=lambda: _trained(folder, own, step),
        checkpoint=_checkpoint(folder, step) if unnamed and to not in MEASURED else None,
    )


def _heads(folder: RunDir, own: OwnCode, step: int) -> dict[str, Any] | None:
    """Measure the heads at a step, as heads.json holds those of the end; None for a run without maps of heads."""
    if without_maps(folder):
        return None
    return {"run": folder.name, **maps_to_dict(measured_maps(folder, own, step))}


def _is_unnamed(config: Config, info: Mapping[str, Any], own: OwnCode) -> bool:
    """Whether a run has code of the user's that may not run here."""
    task = config.task.name
    return (is_file(config.model.attention) and own.attention is None) or (
        is_own(task) and own.task is None and trusted_task(task, recorded_digest(info)) is None
    )


def _checkpoint(folder: RunDir, step: int | None) -> dict[str, bytes]:
    from mhsa_cli.core.training.checkpoint import digest, weights_of  # imports torch

    loaded = folder.load_checkpoint(step, for_training=False)
    check_weights(folder, loaded.step, digest(weights_of(loaded.files)))
    return dict(loaded.files)


def _trained(folder: RunDir, own: OwnCode, step: int | None) -> TrainedRun:
    from mhsa_cli.jobs.trained_run import load_trained_run  # imports torch

    return load_trained_run(folder, own, step)
