"""`mhsa compare`: what two runs have in common, from their settings to their heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import AttentionsOption, JsonOption, OutputOption, RunsOption
from mhsa_cli.errors import NewerFormatError, RunError, StorageError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.runs.listing import final_figures
from mhsa_cli.text import Head, escape

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.records import Matching
    from mhsa_cli.renderers.kit.console import Surface
    from mhsa_cli.renderers.kit.text_lines import Lines
    from mhsa_cli.runs.run_dir import RunDir

FIGURES = {"eval_loss": "eval loss", "eval_accuracy": "accuracy", "seconds": "time", "steps": "steps"}
Settings = tuple[dict[str, Any], dict[str, Any]]  # of the first run and of the second, by "section.key"
Heads = dict[Head, str]  # labels by (layer, head)
TwoRuns = Annotated[list[str] | None, typer.Argument(metavar="RUN RUN", help="Two runs, by name or path.")]


@dataclass(frozen=True, slots=True)
class Found:
    """What a comparison found; each pair is the first run's and the second's.

    `note` says why there is no matching, or which older checkpoint it had to be made of.
    """

    folders: tuple[RunDir, RunDir]
    settings: Settings
    finals: tuple[dict[str, Any], dict[str, Any]]
    matching: Matching | None
    note: str
    labels: tuple[Heads, Heads]


def compare(
    names: TwoRuns = None,
    attention: AttentionsOption = None,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa compare`."""
    from mhsa_cli.commands.output import Paper, picture_path, picture_surface, print_json, write_picture
    from mhsa_cli.runs.listing import run_argument
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.runs.run_dir import RunDir

    given = names or []
    if len(given) != 2:
        more = "; more curves over each other: mhsa curve RUN RUN RUN" if len(given) > 2 else ""
        raise UsageError(
            f"compare takes two runs, found {len(given)}", f"mhsa compare RUN RUN; list the runs: mhsa runs{more}"
        )
    root, file = runs_root(runs), picture_path(output)
    first, second = (RunDir.open(root, name) for name in given)
    found = _look(first, second, attention or [])
    if file is not None:
        write_picture(file, _picture(found, picture_surface(file)), f"{first.name} beside {second.name}")
    if as_json:
        print_json(_document(found))
        return
    paper = Paper()
    paper.draw(_picture(found, paper.surface))
    paper.offer(f"\nnext: mhsa inspect-heads {run_argument(second.path)}")


def _look(first: RunDir, second: RunDir, given: list[str]) -> Found:
    from mhsa_cli.jobs.resume import run_config

    configs = run_config(first), run_config(second)
    settings = _differences(first, second, configs)
    matching, note = _match(first, second, configs, given)
    labels = ({}, {}) if matching is None or note else (_labels(first), _labels(second))
    return Found((first, second), settings, (_final(first), _final(second)), matching, note, labels)


def _differences(first: RunDir, second: RunDir, configs: tuple[Config, Config]) -> Settings:
    """Keep of each run's settings those that the other has not, or has otherwise."""
    one, two = (
        {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}
        for config in configs
    )
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
        "status": info.get("status"),
        **{key: figures.get(key) for key in ("eval_loss", "eval_accuracy")},
        "seconds": info.get("seconds"),
        "steps": info.get("step"),
        "parameters": info.get("parameters"),
    }


def _match(
    first: RunDir, second: RunDir, configs: tuple[Config, Config], given: list[str]
) -> tuple[Matching | None, str]:
    """Match the heads of both runs; without a matching, the reason. torch is loaded only if there may be one.

    `given` are the blocks of one's own that may be imported for it.
    """
    from mhsa_cli.core.heads.comparable import why_not_comparable
    from mhsa_cli.jobs.custom_attention import among, without_maps

    tasks = configs[0].task, configs[1].task
    sizes = [getattr(task, "vocab_size", None) for task in tasks]  # a text's is known once the text is read
    reason = why_not_comparable((sizes[0], sizes[1]), (tasks[0].seq_len, tasks[1].seq_len))
    if reason is not None:
        return None, reason
    for run in (first, second):
        if why := without_maps(run):
            return None, f"{escape(run.name)} has no maps of heads: {why}"
    try:
        own = [among(config, given, run.name) for run, config in zip((first, second), configs, strict=True)]
    except UsageError as error:
        return None, f"{error.message}; {error.hint}"
    from mhsa_cli.core.heads.match import compare_models
    from mhsa_cli.jobs.load_run import trained

    model1, task1, _, step1 = trained(first, own[0])
    model2, task2, _, step2 = trained(second, own[1]) if second.path != first.path else (model1, task1, None, step1)
    older = [
        f"the maps of {escape(run.name)} are of step {step}, its newest whole checkpoint"
        for run, step in ((first, step1), (second, step2))
        if step != run.checkpoints()[-1].step
    ]
    try:
        return compare_models(model1, task1, model2, task2, configs[0].train.seed), "; ".join(older)
    except UsageError as error:
        return None, error.message


def _picture(found: Found, surface: Surface) -> Lines:
    from mhsa_cli.commands.run_summary import common_chance
    from mhsa_cli.jobs.history import History
    from mhsa_cli.renderers.pictures.compare import beside, comparison, differing_settings, matched_heads, unmatched
    from mhsa_cli.renderers.pictures.curve import loss_curve

    names, width = _names(*found.folders), surface.width
    distinct = {folder.path: (folder, name) for folder, name in zip(found.folders, names, strict=True)}
    series = [line for folder, name in distinct.values() for line in History(folder).series(name)]
    guess = common_chance(found.folders)
    baseline = None if guess is None else (guess, f"guessing {guess:.2f}")
    figures = [[title, *(_written(key, final[key]) for final in found.finals)] for key, title in FIGURES.items()]
    heads = (
        unmatched(found.note, width)
        if found.matching is None
        else matched_heads(found.matching, found.labels, names, found.note, width=width, surface=surface)
    )
    return comparison(
        [
            differing_settings(*found.settings, names, width=width, surface=surface),
            beside("final", figures, names, width=width, surface=surface),
            loss_curve(series, width=width, surface=surface, baseline=baseline, log=True),
            heads,
        ]
    )


def _names(first: RunDir, second: RunDir) -> tuple[str, str]:
    """Name both runs; if they lie in two places under one name, by their paths."""
    if first.name == second.name and first.path != second.path:
        return escape(first.path), escape(second.path)
    return escape(first.name), escape(second.name)


def _written(key: str, value: int | float | None) -> str:
    """Write one final figure, None as nothing."""
    from mhsa_cli.commands.run_summary import nats

    forms = {"eval_loss": nats, "eval_accuracy": "{:.1%}".format, "seconds": "{:.1f} s".format, "steps": "{:,}".format}
    return "" if value is None else forms[key](value)


def _labels(run: RunDir) -> Heads:
    """Read the labels of a run's heads, where they were measured on its newest checkpoint."""
    from mhsa_cli.jobs.load_heads import is_stale
    from mhsa_cli.runs.listing import HEADS

    if not (run.path / HEADS).exists():
        return {}
    try:
        content = run.read_heads()
        found = {Head(head["layer"], head["head"]): head.get("label") for head in content["heads"]}
    except (NewerFormatError, StorageError) as error:
        tell(f"note: {error.message}; its labels are left out")
        return {}
    except (RunError, AttributeError, KeyError, TypeError):
        tell(f"note: the heads.json of {run.name} is damaged; its labels are left out")
        return {}
    if is_stale(run, content):
        return {}
    return {head: label for head, label in found.items() if isinstance(label, str) and label}


def _document(found: Found) -> dict[str, Any]:
    keys = dict.fromkeys([*found.settings[0], *found.settings[1]])
    document = {
        "runs": [str(folder.path) for folder in found.folders],
        "differences": {key: [own.get(key) for own in found.settings] for key in keys},
        "final": list(found.finals),
    }
    if found.matching is None:
        return {**document, "matches": None, "matches_note": found.note}
    noted = {"matches_note": found.note} if found.note else {}
    return {**document, "matches": _pairs(found.matching), **noted}


def _pairs(matching: Matching) -> dict[str, Any]:
    return {
        "pairs": [{"first": str(one), "second": str(two), "cost": cost} for one, two, cost in matching.pairs],
        "unmatched_first": [str(head) for head in matching.unmatched_first],
        "unmatched_second": [str(head) for head in matching.unmatched_second],
        "cost": matching.cost,
        "random_cost": matching.random_cost,
        "inputs": matching.inputs,
    }
