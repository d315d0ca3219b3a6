"""Compare two runs: settings, results, and which heads match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mhsa_cli.config.custom_attention import find_block, is_file
from mhsa_cli.config.own_file import OwnCode, OwnCodes
from mhsa_cli.config.own_task import find_task, is_own
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import DATA_FILES
from mhsa_cli.core.heads.comparable import why_not_comparable
from mhsa_cli.errors import NewerFormatError, RunError, StorageError, UsageError
from mhsa_cli.jobs.load_heads import stored_maps, without_maps
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import flat, run_config
from mhsa_cli.records.heads import Matching
from mhsa_cli.runs.listing import final_figures
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape

Settings = tuple[dict[str, Any], dict[str, Any]]  # of the first run and of the second, by "section.key"
Labels = dict[Head, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs; each pair holds the first run's part and the second's.

    `note` gives the reason if heads were not matched, or the older checkpoint that was used for it.
    """

    folders: tuple[RunDir, RunDir]
    settings: Settings
    finals: tuple[dict[str, Any], dict[str, Any]]
    matching: Matching | None
    note: str
    labels: tuple[Labels, Labels]


def compare_runs(first: RunDir, second: RunDir, named: OwnCodes) -> Comparison:
    """Compare two runs. `named` is the user's code that may be imported. Raises: RunError."""
    runs = first, second
    configs = run_config(first), run_config(second)
    matching, note = _match(runs, configs, named)
    labels: tuple[Labels, Labels] = ({}, {}) if matching is None or note else (_labels(first), _labels(second))
    return Comparison(runs, _differences(runs, configs), (_final(first), _final(second)), matching, note, labels)


def _differences(runs: tuple[RunDir, RunDir], configs: tuple[Config, Config]) -> Settings:
    first, second = map(flat, configs)
    texts = [run.read_run_json().get("text_sha256") for run in runs]
    if texts[0] is not None and texts[0] == texts[1]:  # the same text, from any path
        for settings in (first, second):
            for field in DATA_FILES.values():
                settings.pop(f"task.{field}", None)
    missing = object()
    keys = [key for key in {**first, **second} if first.get(key, missing) != second.get(key, missing)]
    return {key: first[key] for key in keys if key in first}, {key: second[key] for key in keys if key in second}


def _final(run: RunDir) -> dict[str, Any]:
    info = run.read_run_json()
    figures = final_figures(info)
    return {
        "run": str(run.path),
        "status": info["status"],
        **{key: figures.get(key) for key in ("eval_loss", "eval_accuracy")},
        "seconds": info.get("seconds"),
        "steps": info.get("step"),
        "parameters": info.get("parameters"),
    }


def _match(runs: tuple[RunDir, RunDir], configs: tuple[Config, Config], may: OwnCodes) -> tuple[Matching | None, str]:
    """Match the heads of both runs, or give the reason why not. Imports torch only if they can be matched."""
    named = configs[0].task, configs[1].task
    sizes = [getattr(task, "vocab_size", None) for task in named]  # unknown for a text before it is read
    reason = why_not_comparable((sizes[0], sizes[1]), (named[0].seq_len, named[1].seq_len))
    if reason is not None:
        return None, reason
    for run in runs:
        if why := without_maps(run):
            return None, f"{escape(run.name)} has no maps of heads: {why}"
    try:
        own = [_own_code(run, config, may) for run, config in zip(runs, configs, strict=True)]
    except UsageError as error:
        return None, f"{error.message}; {error.hint}"
    from mhsa_cli.core.heads.match import compare_models  # imports torch
    from mhsa_cli.jobs.trained_run import load_trained_run

    first = load_trained_run(runs[0], own[0])
    second = load_trained_run(runs[1], own[1]) if runs[1].path != runs[0].path else first
    older = [
        f"the maps of {escape(run.name)} are of step {step}, its newest whole checkpoint"
        for run, step in zip(runs, (first.step, second.step), strict=True)
        if step != run.checkpoints()[-1].step
    ]
    try:
        matching = compare_models(first.model, first.task, second.model, second.task, configs[0].train.seed)
        return matching, "; ".join(older)
    except UsageError as error:
        return None, error.message


def _own_code(run: RunDir, config: Config, may: OwnCodes) -> OwnCode:
    """Find the user's code that a run needs among what is named. Raises: UsageError."""
    attention, task = config.model.attention, config.task.name
    return OwnCode(
        find_block(attention, may.attentions, run.name) if is_file(attention) else None,
        find_task(task, may.tasks, run.name) if is_own(task) else None,
    )


def _labels(run: RunDir) -> Labels:
    """Read the labels of a run's heads, if they were measured on its newest checkpoint."""
    try:
        maps = stored_maps(run)
    except (NewerFormatError, StorageError) as error:
        tell(f"note: {error.message}; its labels are not shown")
        return {}
    except RunError:
        tell(f"note: the heads.json of {run.name} is damaged; its labels are not shown")
        return {}
    heads = [] if maps is None or maps.report is None else maps.report.heads
    return {head.address: head.label.text for head in heads if head.label is not None}
