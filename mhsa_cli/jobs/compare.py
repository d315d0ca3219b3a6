"""What two runs have in common: settings, final figures, and which heads do the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mhsa_cli.config.custom_attention import find_block, is_file
from mhsa_cli.config.schema import Config
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
    """What a comparison found; each pair is the first run's and the second's.

    `note` says why there is no matching, or which older checkpoint it had to be made of.
    """

    folders: tuple[RunDir, RunDir]
    settings: Settings
    finals: tuple[dict[str, Any], dict[str, Any]]
    matching: Matching | None
    note: str
    labels: tuple[Labels, Labels]


def compare_runs(first: RunDir, second: RunDir, given: list[str]) -> Comparison:
    """Compare two runs. `given` are the blocks of one's own that may be imported for it. Raises: RunError."""
    configs = run_config(first), run_config(second)
    settings = _differences(first, second, configs)
    matching, note = _match(first, second, configs, given)
    labels: tuple[Labels, Labels] = ({}, {}) if matching is None or note else (_labels(first), _labels(second))
    return Comparison((first, second), settings, (_final(first), _final(second)), matching, note, labels)


def _differences(first: RunDir, second: RunDir, configs: tuple[Config, Config]) -> Settings:
    """Keep of each run's settings those that the other has not, or has otherwise."""
    one, two = map(flat, configs)
    texts = [run.read_run_json().get("text_sha256") for run in (first, second)]
    if texts[0] is not None and texts[0] == texts[1]:  # one text, wherever it lay
        del one["task.path"], two["task.path"]
    keys = [key for key in {**one, **two} if key not in one or key not in two or one[key] != two[key]]
    return {key: one[key] for key in keys if key in one}, {key: two[key] for key in keys if key in two}


def _final(run: RunDir) -> dict[str, Any]:
    """Collect how a run ended; what its run.json does not know is None."""
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


def _match(
    first: RunDir, second: RunDir, configs: tuple[Config, Config], given: list[str]
) -> tuple[Matching | None, str]:
    """Match the heads of both runs; without a matching, the reason. torch is loaded only if there may be one."""
    tasks = configs[0].task, configs[1].task
    sizes = [getattr(task, "vocab_size", None) for task in tasks]  # a text's is known once the text is read
    reason = why_not_comparable((sizes[0], sizes[1]), (tasks[0].seq_len, tasks[1].seq_len))
    if reason is not None:
        return None, reason
    for run in (first, second):
        if why := without_maps(run):
            return None, f"{escape(run.name)} has no maps of heads: {why}"
    try:
        blocks = [_block(run, config, given) for run, config in zip((first, second), configs, strict=True)]
    except UsageError as error:
        return None, f"{error.message}; {error.hint}"
    from mhsa_cli.core.heads.match import compare_models  # torch comes with both
    from mhsa_cli.jobs.trained_run import load_trained_run

    one = load_trained_run(first, blocks[0])
    two = load_trained_run(second, blocks[1]) if second.path != first.path else one
    older = [
        f"the maps of {escape(run.name)} are of step {step}, its newest whole checkpoint"
        for run, step in ((first, one.step), (second, two.step))
        if step != run.checkpoints()[-1].step
    ]
    try:
        return compare_models(one.model, one.task, two.model, two.task, configs[0].train.seed), "; ".join(older)
    except UsageError as error:
        return None, error.message


def _block(run: RunDir, config: Config, given: list[str]) -> str | None:
    """Find the block that a run was trained with among the given ones; None if it is ours. Raises: UsageError."""
    own = config.model.attention
    return find_block(own, given, run.name) if is_file(own) else None


def _labels(run: RunDir) -> Labels:
    """Read the labels of a run's heads, where they were measured on its newest checkpoint."""
    try:
        maps = stored_maps(run)
    except (NewerFormatError, StorageError) as error:
        tell(f"note: {error.message}; its labels are left out")
        return {}
    except RunError:
        tell(f"note: the heads.json of {run.name} is damaged; its labels are left out")
        return {}
    heads = [] if maps is None or maps.report is None else maps.report.heads
    return {head.address: head.label.text for head in heads if head.label is not None}
