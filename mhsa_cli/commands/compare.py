"""`mhsa compare`: compare the settings, results, curves and heads of two runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from mhsa_cli.commands.options import (
    AttentionsOption,
    JsonOption,
    RunsOption,
    StepsOption,
    TasksOption,
    argument,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import (
    AsOption,
    OutputOption,
    ThemeOption,
    WidthOption,
    only_option,
    picture_file,
    write_picture,
)
from mhsa_cli.commands.run_summary import levels_of
from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.compare import Comparison, compare_runs, find_steps
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.load_run import open_run_or_sweep, refuse_options
from mhsa_cli.jobs.steps import step_option
from mhsa_cli.records.heads import Matching
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.figures.sheet_options import COMPARE_PARTS, Page
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.compare import ONE_SEED_EACH, beside, differing_settings, matched_heads, unmatched
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.runs.listing import origin_of, run_argument
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape, plural, quoted

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure

FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {  # key: title and format
    "eval_loss": ("eval loss", partial(fixed, decimals=4)),
    "eval_accuracy": ("accuracy", percents),
    "seconds": ("time", "{:.1f} s".format),
    "steps": ("steps", "{:,}".format),
}


def compare(
    names: Annotated[list[str] | None, argument("RUN RUN", "names or paths of two runs, or of one sweep")] = None,
    step: StepsOption = None,
    attention: AttentionsOption = None,
    task: TasksOption = None,
    output: OutputOption = None,
    look: AsOption = None,
    width: WidthOption = None,
    theme: ThemeOption = None,
    only: Annotated[str | None, only_option(*COMPARE_PARTS)] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa compare`."""
    file = picture_file(output, look, width, theme, only)
    if len(names or ()) == 1 and names is not None:
        folder = open_run_or_sweep(runs, names[0])
        if isinstance(folder, SweepDir):
            refuse_options(folder, "compare", {"--step": step, "--attention": attention, "--task": task})
            from mhsa_cli.commands.sweep_views import show_pairs  # torch comes with it

            show_pairs(folder, file, as_json)
            return
    if len(names or ()) != 2:
        curves = "\n  curves of more runs: mhsa curve RUN..." if len(names or ()) > 2 else ""
        raise UsageError(
            f"arguments: found {plural(len(names or ()), 'run')}, wanted 2",
            f"mhsa compare RUN RUN, or mhsa compare SWEEP; list them: mhsa runs{curves}",
        )
    root = runs_root(runs)
    first, second = (RunDir.open(root, name) for name in names or ())
    comparison = compare_runs(
        first, second, OwnCodes(attention or (), task or ()), find_steps(first, second, step or [])
    )
    title = f"{first.name} and {second.name}"
    write_picture(file, lambda surface: _picture(comparison, surface), lambda page: _figure(comparison, page), title)
    if as_json:
        print_json(_document(comparison))
        return
    paper = Paper()
    paper.draw(_picture(comparison, paper.surface))
    if comparison.sweep is not None:
        paper.say(f"\n{ONE_SEED_EACH}")
        if comparison.sweep:
            paper.offer(f"  mhsa sweep {' '.join(map(quoted, comparison.sweep))}")
    paper.next(f"mhsa inspect-heads {run_argument(second.path)}{step_option(comparison.steps[1])}")


def _picture(comparison: Comparison, surface: Surface) -> Lines:
    plain, series = _names(*comparison.folders), _series(comparison)
    names = (_at(plain[0], comparison.steps[0]), _at(plain[1], comparison.steps[1]))
    figures = [
        [title, *("" if final[key] is None else write(final[key]) for final in comparison.finals)]
        for key, (title, write) in FIGURES.items()
    ]
    heads = (
        unmatched(comparison.note, surface)
        if comparison.matching is None
        else matched_heads(comparison.matching, comparison.labels, names, surface, comparison.note)
    )
    return stacked(
        [
            differing_settings(*comparison.settings, names, surface),
            beside("final" if comparison.steps == (None, None) else "result", figures, names, surface),
            loss_curve(series, surface, levels=levels_of(comparison.folders), log=True) if series else Lines(),
            heads,
        ]
    )


def _figure(comparison: Comparison, page: Page) -> PaperFigure:
    from mhsa_cli.renderers.figures.compare import compare_figure  # matplotlib comes with it

    levels = levels_of(comparison.folders)
    return compare_figure(_series(comparison), comparison.matching, page, levels=levels)


def _series(comparison: Comparison) -> list[Series]:
    """Read the curves of both runs, of one run compared with itself once."""
    folders = comparison.folders
    distinct = {folder.path: (folder, name) for folder, name in zip(folders, _names(*folders), strict=True)}
    return [
        line
        for folder, name in distinct.values()
        for line in History(folder).series(name)
        if origin_of(folder.read_run_json()) is None
    ]


def _names(first: RunDir, second: RunDir) -> tuple[str, str]:
    """Name both runs; two of the same name by their paths."""
    if first.name == second.name and first.path != second.path:
        return escape(first.path), escape(second.path)
    return escape(first.name), escape(second.name)


def _at(name: str, step: int | None) -> str:
    """Name a run with the step that is compared, if it is not its end."""
    return name if step is None else f"{name} at {step}"


def _document(comparison: Comparison) -> dict[str, Any]:
    keys = dict.fromkeys([*comparison.settings[0], *comparison.settings[1]])
    matching = comparison.matching
    return {
        "runs": [str(folder.path) for folder in comparison.folders],
        "differences": {key: [settings.get(key) for settings in comparison.settings] for key in keys},
        "final": list(comparison.finals),
        "matches": None if matching is None else _pairs(matching),
        **({"matches_note": comparison.note} if matching is None or comparison.note else {}),
    }


def _pairs(matching: Matching) -> dict[str, Any]:
    return {
        "pairs": [{"first": str(first), "second": str(second), "cost": cost} for first, second, cost in matching.pairs],
        "unmatched_first": [str(head) for head in matching.unmatched_first],
        "unmatched_second": [str(head) for head in matching.unmatched_second],
        "cost": matching.cost,
        "status": matching.status,
        "null_cost": matching.null_cost,
        "p_value": matching.p_value,
        "draws": matching.draws,
        "untested": matching.untested,
        "inputs": matching.inputs,
    }
