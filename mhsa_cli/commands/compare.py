"""`mhsa compare`: what two runs have in common, from their settings to their heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunsOption
from mhsa_cli.commands.stderr import tell
from mhsa_cli.errors import MhsaError, UsageError

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.records import Matching
    from mhsa_cli.renderers.console import Surface
    from mhsa_cli.renderers.lines import Lines
    from mhsa_cli.runs.rundir import RunDir

FIGURES = {"eval_loss": "eval loss", "eval_accuracy": "accuracy", "seconds": "time", "steps": "steps"}
Settings = tuple[dict[str, Any], dict[str, Any]]  # of the first run and of the second, by "section.key"
TwoRuns = Annotated[list[str] | None, typer.Argument(metavar="RUN RUN", help="Two runs, by name or path.")]


def compare(
    names: TwoRuns = None, output: OutputOption = None, runs: RunsOption = None, as_json: JsonOption = False
) -> None:
    """Compare two runs: settings, figures, curves, and which head of one does what which head of the other does.

    Example: mhsa compare copy-h4 copy-h8
    """
    from mhsa_cli.commands.printing import Paper, print_json, run_argument, svg_path, svg_surface, write_svg
    from mhsa_cli.commands.resuming import run_config
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.runs.rundir import RunDir

    given = names or []
    if len(given) != 2:
        more = "; more curves over each other: mhsa curve RUN RUN RUN" if len(given) > 2 else ""
        raise UsageError(
            f"compare takes two runs, found {len(given)}", f"mhsa compare RUN RUN; list the runs: mhsa runs{more}"
        )
    root, file = runs_root(runs), svg_path(output)
    first, second = (RunDir.open(root, name) for name in given)
    configs = run_config(first), run_config(second)
    settings = _differences(first, second, configs)
    finals = [_final(run) for run in (first, second)]
    matching, note = _match(first, second, configs)

    def picture(width: int, surface: Surface) -> Lines:
        return _picture((first, second), settings, finals, matching, note, width, surface)

    if file is not None:
        write_svg(file, picture(svg_surface().width, svg_surface()), f"{first.name} beside {second.name}")
    if as_json:
        keys = dict.fromkeys([*settings[0], *settings[1]])
        document = {
            "runs": [str(first.path), str(second.path)],
            "differences": {key: [own.get(key) for own in settings] for key in keys},
            "final": finals,
            "matches": None if matching is None else _document(matching),
        }
        print_json(document if note is None else {**document, "matches_note": note})
        return
    paper = Paper()
    paper.draw(picture(paper.width, paper.surface))
    paper.say(f"\nnext: mhsa inspect-heads {run_argument(second)}")


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
    final = info.get("final")
    figures = final if isinstance(final, dict) else {}
    return {
        "run": str(run.path),
        "status": info.get("status"),
        **{key: figures.get(key) for key in ("eval_loss", "eval_accuracy")},
        "seconds": info.get("seconds"),
        "steps": info.get("step"),
        "parameters": info.get("parameters"),
    }


def _match(first: RunDir, second: RunDir, configs: tuple[Config, Config]) -> tuple[Matching | None, str | None]:
    """Match the heads of both runs; without a matching, the reason. torch is loaded only if there may be one."""
    from mhsa_cli.core.heads.comparable import why_not_comparable

    tasks = configs[0].task, configs[1].task
    sizes = [getattr(task, "vocab_size", None) for task in tasks]  # a text's is known once the text is read
    reason = why_not_comparable((sizes[0], sizes[1]), (tasks[0].seq_len, tasks[1].seq_len))
    if reason is not None:
        return None, reason
    from mhsa_cli.commands.opening import trained
    from mhsa_cli.core.heads.match import compare_models

    model1, task1, config, _ = trained(first)
    model2, task2, _, _ = trained(second)
    try:
        return compare_models(model1, task1, model2, task2, config.train.seed), None
    except UsageError as error:
        return None, error.message


def _picture(
    folders: tuple[RunDir, RunDir],
    settings: Settings,
    finals: list[dict[str, Any]],
    matching: Matching | None,
    note: str | None,
    width: int,
    surface: Surface,
) -> Lines:
    from mhsa_cli.commands.summary import common_chance, history
    from mhsa_cli.renderers.compare import beside, comparison, differing_settings, matched_heads, unmatched
    from mhsa_cli.renderers.curve import loss_curve

    distinct = {folder.path: folder for folder in folders}
    names = (folders[0].name, folders[1].name)
    if names[0] == names[1] and len(distinct) > 1:  # the same name in two places
        names = (str(folders[0].path), str(folders[1].path))
    called = dict(zip((folder.path for folder in folders), names, strict=True))
    series = [s for path, folder in distinct.items() for s in history(folder, called[path])]
    guess = common_chance(folders)
    baseline = None if guess is None else (guess, f"guessing {guess:.2f}")
    figures = [[title, *(_written(key, final[key]) for final in finals)] for key, title in FIGURES.items()]
    heads = (
        unmatched(note or "", width)
        if matching is None
        else matched_heads(matching, (_labels(folders[0]), _labels(folders[1])), names, width=width, surface=surface)
    )
    return comparison(
        [
            differing_settings(*settings, names, width=width, surface=surface),
            beside("final", figures, names, width=width, surface=surface),
            loss_curve(series, width=width, surface=surface, baseline=baseline, log=True),
            heads,
        ]
    )


def _written(key: str, value: Any) -> str:
    """Write one final figure; what is no number (somebody edited the file) is shown as it is, None as nothing."""
    from mhsa_cli.commands.summary import nats

    forms = {"eval_loss": nats, "eval_accuracy": "{:.1%}".format, "seconds": "{:.1f} s".format, "steps": "{:,}".format}
    if value is None:
        return ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return forms.get(key, str)(value) if is_number else str(value)


def _labels(run: RunDir) -> dict[tuple[int, int], str]:
    """Read the labels of a run's heads, where they were measured on its newest checkpoint."""
    from mhsa_cli.runs.listing import HEADS

    if not (run.path / HEADS).exists():
        return {}
    try:
        content = run.read_heads()
        found = {(head["layer"], head["head"]): head.get("label") for head in content["heads"]}
    except (MhsaError, AttributeError, KeyError, TypeError):
        tell(f"note: the heads.json of {run.name} is damaged; its labels are left out")
        return {}
    saved = run.checkpoints()
    if saved and saved[-1].step != content.get("step"):
        return {}  # training went on after it was written
    return {head: label for head, label in found.items() if isinstance(label, str) and label}


def _document(matching: Matching) -> dict[str, Any]:
    def name(head: tuple[int, int]) -> str:
        return f"L{head[0]}.H{head[1]}"

    return {
        "pairs": [{"first": name(one), "second": name(two), "cost": cost} for one, two, cost in matching.pairs],
        "unmatched_first": [name(head) for head in matching.unmatched_first],
        "unmatched_second": [name(head) for head in matching.unmatched_second],
        "cost": matching.cost,
        "random_cost": matching.random_cost,
        "inputs": matching.inputs,
    }
