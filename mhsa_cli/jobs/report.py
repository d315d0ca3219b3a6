"""Read what the page of a report shows of a run, or of a sweep. A finished run needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, get_args

from mhsa_cli.config.dump import changed_settings
from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.core.heads.history import histories
from mhsa_cli.errors import MhsaError, RunError, StorageError
from mhsa_cli.jobs.compare import own_code
from mhsa_cli.jobs.load_heads import has_other_weights, measured_maps, stored_maps, without_maps
from mhsa_cli.jobs.run_config import read_config, run_config
from mhsa_cli.jobs.timeline import labels_of, losses_of, points_of
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.report import Reason, RunFacts, RunReport, ShownSweep, ShownTrial
from mhsa_cli.records.sweep import SweepReport, TrialResult
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.runs.heads import snapshot_maps, snapshots_from_lines
from mhsa_cli.runs.listing import ENDED_BY, SCORES, WEIGHTS, final_figures, origin_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir

if TYPE_CHECKING:
    from mhsa_cli.jobs.sweep.report import SweepResults

MOST = 12  # trials that are shown of a sweep
REASONS: tuple[Reason, ...] = get_args(Reason)


def report_run(folder: RunDir, own: OwnCodes | None) -> RunReport:
    """Read a run. Heads that were not measured yet are measured at the newest checkpoint, with the user's `own` code.

    Without a checkpoint, and where `own` is None, the maps are those of the last snapshot.
    Raises: RunError, StorageError, UsageError if code that is needed is not named.
    """
    info = folder.read_run_json()
    trained = origin_of(info) is None  # else there is one snapshot, of no step
    snapshots = snapshots_from_lines(folder.records(SCORES)) if trained else []
    maps = _maps(folder, own, str(info.get("task") or ""), snapshots)
    series = losses_of(folder)
    labels = labels_of(None if maps is None else maps.report)
    return RunReport(
        name=folder.name,
        facts=_facts(info),
        settings=_settings(folder),
        series=series,
        snapshots=snapshots,
        histories=histories(snapshots, points_of(series), labels),
        maps=maps,
        no_maps=without_maps(folder),
        other_weights=maps is not None and maps.report is not None and has_other_weights(folder, maps),
    )


def _maps(folder: RunDir, own: OwnCodes | None, task: str, snapshots: Sequence[SnapshotRecord]) -> HeadMaps | None:
    """Return the maps at the end, stored or measured now, else those of the last snapshot that has any."""
    if without_maps(folder):
        return None
    stored = stored_maps(folder)
    if stored is not None and (stored.report is not None or own is None):
        return stored
    if own is not None and folder.checkpoints():
        return measured_maps(folder, own_code(folder, run_config(folder), own))
    return next((snapshot_maps(one, task, ()) for one in reversed(snapshots) if one.maps), None)


def _settings(folder: RunDir) -> list[tuple[str, str]]:
    """List the settings unlike the defaults; none where the config cannot be read, which was noted before."""
    try:
        return changed_settings(read_config(folder, compare=False)[0])
    except (RunError, StorageError):
        return []


def _facts(info: Mapping[str, Any]) -> RunFacts:
    final, chance = final_figures(info), info.get("chance") or {}
    return RunFacts(
        status=info["status"],
        task=info.get("task") or "",
        origin=origin_of(info),
        parameters=info.get("parameters"),
        step=info.get("step"),
        total_steps=info.get("total_steps"),
        ended_by=info.get(ENDED_BY),
        seconds=info.get("seconds"),
        device=info.get("device"),
        loss=final.get("eval_loss"),
        accuracy=final.get("eval_accuracy"),
        chance_loss=chance.get("loss"),
        chance_accuracy=chance.get("accuracy"),
        baselines=info.get("baselines") or {},
        seen=info.get("eval_rows_seen"),
        rows=info.get("eval_rows"),
        weights_sha256=info.get(WEIGHTS),
    )


def report_sweep(sweep: SweepDir, results: SweepResults) -> ShownSweep:
    """Read the trials that are shown of a sweep; one that cannot be read has the reason instead."""
    shown = []
    for trial, reason in shown_trials(results.report):
        run, problem = None, ""
        try:
            run = report_run(RunDir.open(sweep.path, trial.run), None)
        except MhsaError as error:
            problem = error.message
        shown.append(ShownTrial(trial, reason, run, problem))
    return ShownSweep(sweep.name, results.report, results.curves, shown)


def shown_trials(report: SweepReport) -> list[tuple[TrialResult, Reason]]:
    """Choose at most MOST trials: first each setting's median, then its failures, then its worst and its best.

    They come in the order of the settings. Of one trial only the first reason counts.
    """
    ranked = [list(_ranked(report, cell)) for cell in range(len(report.groups))]
    rounds = [found for found in chain.from_iterable(zip_longest(*ranked)) if found is not None]
    return sorted(rounds[:MOST], key=lambda found: (found[0].cell, REASONS.index(found[1])))


def _ranked(report: SweepReport, cell: int) -> Iterator[tuple[TrialResult, Reason]]:
    """Yield the trials of a setting that may be shown, the first ones first."""
    own = [trial for trial in report.trials if trial.cell == cell]
    failed = [trial for trial in own if not trial.is_finished and not trial.is_pending]
    ended = sorted((trial for trial in own if trial.is_finished), key=_loss)
    if (median := report.median_trial(cell)) is not None:
        yield median, "median"
    yield from ((trial, "failed") for trial in failed[:1])
    yield from ((trial, "worst") for trial in ended[-1:] if trial is not median)
    yield from ((trial, "best") for trial in ended[:1] if trial is not median)
    yield from ((trial, "failed") for trial in failed[1:])


def _loss(trial: TrialResult) -> float:
    return math.inf if trial.final_loss is None else trial.final_loss
