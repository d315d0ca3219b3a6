"""What the commands on a run show of a sweep: the curves, labels, onsets, trials and differences of its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import PictureFile, write_picture
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.evaluate import evaluate_sweep
from mhsa_cli.jobs.export import export_sweep
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.report import report_sweep
from mhsa_cli.jobs.sweep.run import read_sweep
from mhsa_cli.records.labels import set_words
from mhsa_cli.records.sweep import LabelShare, SweepReport, TrialResult
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.pictures.evaluation import sweep_evaluation_table
from mhsa_cli.renderers.pictures.sweep import curves_of, curves_picture, pair_sentences
from mhsa_cli.renderers.pictures.sweep_labels import medians_table, sets_table, shares_table, trials_table
from mhsa_cli.renderers.pictures.sweep_onsets import onsets_table
from mhsa_cli.renderers.pictures.sweep_pairs import pairs_table
from mhsa_cli.renderers.pictures.sweep_words import pair_words
from mhsa_cli.renderers.report.sweep_document import sweep_document
from mhsa_cli.runs.listing import run_argument, trial_folders
from mhsa_cli.runs.sweep_dir import SweepDir, report_document
from mhsa_cli.text import escape, plural, quoted

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure


def show_curves(sweep: SweepDir, file: PictureFile | None, as_json: bool) -> None:
    """Run `mhsa curve` on a sweep: the run of median loss of each setting over the quartiles of its runs."""
    results = read_sweep(sweep)
    report = _finished(sweep, results.report)
    curves = curves_of(report, results.curves, sweep.name)

    def picture(surface: Surface) -> Lines:
        return stacked([curves_picture(curves, surface), medians_table(report, surface)])

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.curve import bands_figure  # matplotlib comes with it

        return bands_figure(curves, page)

    write_picture(file, picture, figure, f"loss of {sweep.name}")
    if as_json:
        groups = []
        for cell, group in enumerate(report.groups):
            _, steps, loss, low, high = curves.get(cell, ("", [], [], [], []))
            median = report.median_trial(cell)
            own = {"overrides": dict(group.overrides), "finished": group.models, "run": median and median.run}
            groups.append({**own, "steps": steps, "loss": loss, "low": low, "high": high})
        print_json({"sweep": str(sweep.path), "groups": groups})
    else:
        _show(sweep, report, picture, "curve")
    _tell_notes(results.notes)


def show_labels(sweep: SweepDir, as_json: bool) -> None:
    """Run `mhsa explain` on a sweep: how many models of each setting have a head with each label."""
    results = read_sweep(sweep)
    report = _finished(sweep, results.report)
    if as_json:
        groups = [
            {
                "overrides": dict(group.overrides),
                "models": group.models,
                "labels": [_share(share) for share in group.shares],
                "sets": [
                    {"heads": set_words(labels), "label_ids": [label.id for label in labels], "models": count}
                    for labels, count in group.label_sets
                ],
            }
            for group in report.groups
        ]
        print_json({"sweep": str(sweep.path), "groups": groups})
    else:
        _show(
            sweep,
            report,
            lambda surface: stacked(part(report, surface) for part in (shares_table, sets_table)),
            "explain",
        )
    _tell_notes(results.notes)


def show_onsets(sweep: SweepDir, file: PictureFile | None, as_json: bool) -> None:
    """Run `mhsa timeline` on a sweep: when the heads of each setting formed, and where the loss dropped most."""
    results = read_sweep(sweep)
    report = _finished(sweep, results.report)
    if not any(group.formed for group in report.groups):
        hint = f"what there is: mhsa explain {run_argument(sweep.path)}"
        raise RunError(
            (sweep.path, ": no finished trial has a labelled head and its scores over training"), hint, "no-onset"
        )

    def picture(surface: Surface) -> Lines:
        return onsets_table(report, surface, drawn=True)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.sweep import onsets_figure  # matplotlib comes with it

        return onsets_figure(report, page)

    write_picture(file, picture, figure, f"heads of {sweep.name} over training")
    if as_json:
        document = report_document(report, pair_words)["groups"]
        keys = ("overrides", "models", "formed")
        print_json({"sweep": str(sweep.path), "groups": [{key: group[key] for key in keys} for group in document]})
    else:
        _show(sweep, report, picture, "timeline")
    _tell_notes(results.notes)


def show_trials(sweep: SweepDir, file: PictureFile | None, as_json: bool) -> None:
    """Run `mhsa inspect-heads` on a sweep: a row for each trial, with the labels of its heads."""
    results = read_sweep(sweep)
    report = _finished(sweep, results.report)

    def picture(surface: Surface) -> Lines:
        return trials_table(report, surface)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.sweep import shares_figure  # matplotlib comes with it

        return shares_figure(report, page)

    write_picture(file, picture, figure, f"heads of {sweep.name}")
    if as_json:
        document = report_document(report, pair_words)
        medians = [median and median.run for median in _medians(report)]
        print_json({"sweep": str(sweep.path), "median_runs": medians, "runs": document["runs"]})
    else:
        _show(sweep, report, picture, "inspect-heads")
    _tell_notes(results.notes)


def show_pairs(sweep: SweepDir, file: PictureFile | None, as_json: bool) -> None:
    """Run `mhsa compare` on a sweep: its neighbouring settings against each other, seed by seed."""
    results = read_sweep(sweep)
    report = results.report
    if not report.pairs:
        names = [run_argument(path) for path in trial_folders(sweep.path)[:2]]
        hint = f"two of its trials: mhsa compare {' '.join(names)}" if len(names) == 2 else None
        raise UsageError(f"{escape(sweep.name)} has one setting, nothing to compare it with", hint)

    def picture(surface: Surface) -> Lines:
        return stacked([pairs_table(report, surface), pair_sentences(report, surface)])

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.sweep import pairs_figure  # matplotlib comes with it

        return pairs_figure(report, page)

    write_picture(file, picture, figure, f"settings of {sweep.name}")
    if as_json:
        document = report_document(report, pair_words)
        print_json({"sweep": str(sweep.path), **{key: document[key] for key in ("goal", "groups", "pairs")}})
    else:
        _show(sweep, report, picture, "compare")
    _tell_notes(results.notes)


def show_evaluation(
    sweep: SweepDir,
    own: OwnCode,
    changes: Sequence[str],
    rows: int | None,
    seed: int | None,
    file: PictureFile | None,
    as_json: bool,
) -> None:
    """Run `mhsa evaluate` on a sweep: medians over the seeds of each setting, a row for each task."""
    results = read_sweep(sweep)
    report = _finished(sweep, results.report)
    found = evaluate_sweep(sweep, report, own, changes, rows, seed)

    def picture(surface: Surface) -> Lines:
        return sweep_evaluation_table(report, found, surface)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.evaluation import sweep_evaluation_figure  # matplotlib comes with it

        return sweep_evaluation_figure(report, found, page)

    write_picture(file, picture, figure, f"evaluation of {sweep.name}")
    if as_json:
        print_json({"sweep": str(sweep.path), "groups": [asdict(one) for one in found]})
    else:
        _show(sweep, report, picture, "evaluate")
    _tell_notes(results.notes)


def page_of(sweep: SweepDir) -> dict[str, Any]:
    """Run `mhsa report` on a sweep: return the document of its page."""
    results = read_sweep(sweep)
    _finished(sweep, results.report)
    _tell_notes(results.notes)
    return sweep_document(report_sweep(sweep, results))


def show_export(sweep: SweepDir, to: str, output: Path | None, as_json: bool) -> None:
    """Run `mhsa export` on a sweep: all trials in one table or document."""
    results = read_sweep(sweep)
    path, written = export_sweep(sweep, results.report, to, output, pair_words)
    if as_json:
        print_json({"sweep": str(sweep.path), "to": to, "files": [str(file) for file in written]})
    else:
        paper = Paper()
        paper.wrote(written)
        paper.offer(
            f"next: head -3 {quoted(path / 'trials.csv')}"
            if to == "csv"
            else f"next: python -m json.tool {quoted(path)}"
        )
    _tell_notes(results.notes)


def _finished(sweep: SweepDir, report: SweepReport) -> SweepReport:
    """Return the report of a sweep with a finished trial. Raises: RunError."""
    if not any(trial.is_finished for trial in report.trials):
        hint = f"mhsa sweep show {run_argument(sweep.path)}"
        raise RunError((sweep.path, " has no finished trial"), hint, "no-trial")
    return report


def _share(share: LabelShare) -> dict[str, Any]:
    label = share.label
    return {
        "label": None if label is None else label.text,
        "label_id": None if label is None else label.id,
        "circuit": share.is_circuit,
        "models": share.models,
        "of": share.of,
        "wilson95": list(share.wilson95),
    }


def _medians(report: SweepReport) -> list[TrialResult | None]:
    """List the finished trial of median loss of each setting."""
    return [report.median_trial(cell) for cell in range(len(report.groups))]


def _show(sweep: SweepDir, report: SweepReport, picture: Callable[[Surface], Lines], command: str) -> None:
    """Print a picture under the number of finished trials, and offer the same of one trial."""
    paper = Paper()
    finished = sum(trial.is_finished for trial in report.trials)
    paper.say(f"{sweep.name}: {finished} of {plural(len(report.trials), 'trial')} finished\n")
    paper.draw(picture(paper.surface))
    trials = [trial for trial in _medians(report) if trial is not None]
    names = [run_argument(sweep.path / Path(trial.run).name) for trial in trials]
    if command == "compare" and len(names) > 1:
        paper.next(f"mhsa compare {names[0]} {names[1]}")
    elif names:
        paper.next(f"mhsa {command} {names[0]}")


def _tell_notes(notes: Sequence[str]) -> None:
    for note in notes:
        tell(note)
