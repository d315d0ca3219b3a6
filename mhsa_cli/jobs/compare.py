"""Compare two runs: settings, results, and which heads match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.config.custom_attention import find_block, is_file
from mhsa_cli.config.own_file import OwnCode, OwnCodes
from mhsa_cli.config.own_task import find_task, is_own, recorded_digest
from mhsa_cli.config.scalars import write
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import DATA_FILES
from mhsa_cli.core.heads.comparable import why_not_comparable
from mhsa_cli.errors import NewerFormatError, RunError, StorageError, UsageError
from mhsa_cli.jobs.load_heads import measured_maps, stored_maps, without_maps
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import flat, run_config
from mhsa_cli.jobs.steps import evaluations, find_step
from mhsa_cli.records.heads import Matching
from mhsa_cli.runs.listing import CONFIG, final_figures, origin_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape

Settings = tuple[dict[str, Any], dict[str, Any]]  # of the first run and of the second, by "section.key"
Labels = dict[Head, str]
SEEDS = 8  # of the sweep that would tell two settings apart
Steps = tuple[int | None, int | None]
Codes = tuple[OwnCode, OwnCode]  # what the user wrote of each


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs; each pair holds the first run's part and the second's.

    `steps` are None for the end of a run. `note` gives the reason if heads were not matched, or the older checkpoint
    that was used for it. `sweep` are the arguments of a sweep over the setting in which they differ, for two trained
    runs that differ in any; without arguments if they differ in more, or in one that no sweep takes.
    """

    folders: tuple[RunDir, RunDir]
    steps: Steps
    settings: Settings
    finals: tuple[dict[str, Any], dict[str, Any]]
    matching: Matching | None
    note: str
    labels: tuple[Labels, Labels]
    sweep: Sequence[str] | None = None


def find_steps(first: RunDir, second: RunDir, given: Sequence[str]) -> Steps:
    """Find the steps that `--step` names: one for both runs, or one each. Raises: UsageError, RunError."""
    if len(given) > 2:
        raise UsageError(f"--step: found {len(given)} steps, wanted one for both runs, or one each")
    one, other = (given[0], given[-1]) if given else (None, None)
    return find_step(first, one), find_step(second, other)


def compare_runs(first: RunDir, second: RunDir, named: OwnCodes, steps: Steps = (None, None)) -> Comparison:
    """Compare two runs, at steps if given. `named` is the user's code that may be imported.

    Raises: RunError.
    """
    runs = first, second
    configs = run_config(first), run_config(second)
    matching, note, codes = _match(runs, configs, named, steps)
    labels: tuple[Labels, Labels] = ({}, {})
    if matching is not None and not note:
        labels = _labels(first, steps[0], codes[0]), _labels(second, steps[1], codes[1])
    finals = _final(first, steps[0]), _final(second, steps[1])
    settings = _differences(runs, configs)
    trained = not any(origin_of(run.read_run_json()) for run in runs)
    sweep = _sweep(first, configs, settings) if trained and any(settings) else None
    return Comparison(runs, steps, settings, finals, matching, note, labels, sweep)


def _sweep(run: RunDir, configs: tuple[Config, Config], settings: Settings) -> list[str]:
    """Write the arguments of a sweep over the one setting in which two runs differ, the seed aside; [] if none does."""
    keys = {*settings[0], *settings[1]} - {"train.seed"}
    own = any(is_file(config.model.attention) or is_own(config.task.name) for config in configs)
    values = [write(one[key]) for key in keys for one in settings if isinstance(one.get(key), bool | int | float | str)]
    if own or len(keys) > 1 or len(values) != 2 * len(keys) or any(set(value) & set(",/:[ ") for value in values):
        return []
    file = str(run.path / CONFIG)
    return ["--config", file, *(f"{key}={','.join(values)}" for key in keys), "--seeds", str(SEEDS)]


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


def _final(run: RunDir, step: int | None) -> dict[str, Any]:
    """Collect the figures of a run at its end, or those that it recorded at a step."""
    info = run.read_run_json()
    figures = final_figures(info)
    if step is not None:
        at = evaluations(run).get(step)
        figures = {} if at is None else {"eval_loss": at.loss, "eval_accuracy": at.accuracy}
    return {
        "run": str(run.path),
        "status": info["status"],
        **{key: figures.get(key) for key in ("eval_loss", "eval_accuracy")},
        "seconds": info.get("seconds") if step in (None, info.get("step")) else None,
        "steps": None if origin_of(info) else info.get("step") if step is None else step,
        "parameters": info.get("parameters"),
    }


def _match(
    runs: tuple[RunDir, RunDir], configs: tuple[Config, Config], may: OwnCodes, steps: Steps
) -> tuple[Matching | None, str, Codes]:
    """Match the heads of both runs, or give the reason why not; returns the code of theirs as well.

    Imports torch only if they can be matched.
    """
    none: Codes = (OwnCode(), OwnCode())
    tasks = configs[0].task, configs[1].task
    sizes = [getattr(task, "vocab_size", None) for task in tasks]  # unknown for a text before it is read
    reason = why_not_comparable((sizes[0], sizes[1]), (tasks[0].seq_len, tasks[1].seq_len))
    if reason is not None:
        return None, reason, none
    for run in runs:
        if why := without_maps(run):
            return None, f"{escape(run.name)} has no maps of heads: {why}", none
    try:
        codes = own_code(runs[0], configs[0], may), own_code(runs[1], configs[1], may)
    except UsageError as error:
        return None, f"{error.message}; {error.hint}", none
    from mhsa_cli.core.heads.match import compare_models  # imports torch
    from mhsa_cli.jobs.trained_run import load_trained_run

    same = runs[1].path == runs[0].path and steps[1] == steps[0]
    first = load_trained_run(runs[0], codes[0], steps[0])
    second = first if same else load_trained_run(runs[1], codes[1], steps[1])
    older = [
        f"the maps of {escape(run.name)} are of step {found}, its newest whole checkpoint"
        for run, found, step in zip(runs, (first.step, second.step), steps, strict=True)
        if step is None and found != run.checkpoints()[-1].step
    ]
    try:
        matching = compare_models(first.model, first.task, second.model, second.task, configs[0].train.seed)
        return matching, "; ".join(older), codes
    except UsageError as error:
        return None, error.message, none


def own_code(run: RunDir, config: Config, may: OwnCodes) -> OwnCode:
    """Find the user's code that a run needs among what is named. Raises: UsageError."""
    attention, task = config.model.attention, config.task.name
    return OwnCode(
        find_block(attention, may.attentions, run.name) if is_file(attention) else None,
        find_task(task, may.tasks, run.name, recorded_digest(run.read_run_json())) if is_own(task) else None,
    )


def _labels(run: RunDir, step: int | None, own: OwnCode) -> Labels:
    """Read the labels of a run's heads, if they were measured on its newest checkpoint; those of a step, or measure."""
    try:
        maps = stored_maps(run) if step is None else measured_maps(run, own, step)
    except (NewerFormatError, StorageError) as error:
        tell(f"note: {error.message}; its labels are not shown")
        return {}
    except RunError:
        tell(f"note: the heads.json of {run.name} is damaged; its labels are not shown")
        return {}
    heads = [] if maps is None or maps.report is None else maps.report.heads
    return {head.address: head.label.text for head in heads if head.label is not None}
