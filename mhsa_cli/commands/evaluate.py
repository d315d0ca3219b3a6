"""`mhsa evaluate`: loss, accuracy and exact match on held-out rows, also of the task with other settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from mhsa_cli.commands.options import (
    AttentionOption,
    JsonOption,
    RunsOption,
    StepOption,
    TaskOption,
    argument,
    option,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import AsOption, OutputOption, ThemeOption, WidthOption, picture_file, write_picture
from mhsa_cli.config.overrides import is_override
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.schema import MAX_ROWS
from mhsa_cli.config.task_changes import changed_tasks
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.load_heads import heading
from mhsa_cli.jobs.load_run import next_look, open_run_or_sweep, refuse_options
from mhsa_cli.jobs.run_config import run_config
from mhsa_cli.jobs.steps import find_step
from mhsa_cli.records.evaluation import Evaluation
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.pictures.evaluation import evaluation_picture
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import plural

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure


def evaluate(
    arguments: Annotated[
        list[str] | None,
        argument(
            "[RUN] [KEY=VALUE]...",
            "name or path of a run or a sweep [default: newest run]\nsettings of its task to change, as seq_len=24; "
            "of a list, seq_len=12,24, a row each",
        ),
    ] = None,
    rows: Annotated[
        int | None, option("--rows", "N", "held-out rows [default: train.eval_sequences]", min=1, max=MAX_ROWS)
    ] = None,
    seed: Annotated[
        int | None, option("--seed", "N", "seed of the rows [default: train.seed]", min=0, max=2**63 - 1)
    ] = None,
    step: StepOption = None,
    attention: AttentionOption = None,
    task: TaskOption = None,
    output: OutputOption = None,
    look: AsOption = None,
    width: WidthOption = None,
    theme: ThemeOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa evaluate`."""
    file = picture_file(output, look, width, theme)
    given = arguments or []
    names, changes = ([one for one in given if is_override(one) is wanted] for wanted in (False, True))
    if len(names) > 1:
        hint = "evaluate them one by one; settings are written KEY=VALUE"
        raise UsageError(f"arguments: found {len(names)} runs, wanted 1", hint)
    folder, own = open_run_or_sweep(runs, names[0] if names else None), OwnCode(attention, task)
    if isinstance(folder, SweepDir):
        refuse_options(folder, "evaluate", {"--step": step})
        from mhsa_cli.commands.sweep_views import show_evaluation  # torch comes with it

        show_evaluation(folder, own, changes, rows, seed, file, as_json)
        return
    at = find_step(folder, step)
    changed_tasks(run_config(folder), changes)  # checked before torch is loaded
    from mhsa_cli.jobs.evaluate import evaluate_run

    found = evaluate_run(folder, own, changes, step=at, rows=rows, seed=seed)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.evaluation import evaluation_figure  # matplotlib comes with it

        return evaluation_figure(found.results, page)

    title = f"evaluation of {folder.name}"
    write_picture(file, lambda surface: evaluation_picture(found.results, surface), figure, title)
    if as_json:
        document = {"run": str(folder.path), "step": found.step, "seed": found.seed}
        print_json({**document, "results": [result_document(one) for one in found.results]})
        return
    paper = Paper()
    first = found.results[0]
    paper.say(f"{heading(folder, found.step)}: {plural(first.rows, 'held-out row')}, seed {found.seed}\n")
    paper.draw(evaluation_picture(found.results, paper.surface))
    paper.next(next_look(folder.path))


def result_document(one: Evaluation) -> dict[str, Any]:
    """Write an evaluation with names that say what its figures are."""
    plain = asdict(one)
    interval = [plain.pop("exact_low"), plain.pop("exact_high")]
    exact = {"exact_match": one.exact_match, "exact_match_wilson95": interval}
    return {**{key: plain.pop(key) for key in ("settings", "rows", "seen")}, **exact, **plain}
