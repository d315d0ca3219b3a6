"""`mhsa explain`: describe what the heads do, in sentences with measured numbers."""

from __future__ import annotations

from typing import Annotated

from mhsa_cli.commands.options import (
    AttentionOption,
    HeadsOption,
    JsonOption,
    RunOrSweepArgument,
    RunsOption,
    ScoresOption,
    StepOption,
    TaskOption,
    flag,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.run_summary import show_model, show_own_scores
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.jobs.load_heads import check_maps, heading, measured_maps, read_addresses, report_of, tell_other_weights
from mhsa_cli.jobs.load_run import open_run_or_sweep, refuse_options
from mhsa_cli.jobs.load_scores import with_scores
from mhsa_cli.jobs.steps import find_step, step_option
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.pictures.explain import (
    by_worth,
    explain_head,
    explain_model,
    explain_teamwork,
    head_lines,
    layer_names,
)
from mhsa_cli.renderers.pictures.heads import LIFT
from mhsa_cli.runs.heads import score_to_dict, verdict_to_dict
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir


def explain(
    run: RunOrSweepArgument = None,
    heads: HeadsOption = None,
    why: Annotated[bool, flag("--why", "the figures behind every label")] = False,
    more: Annotated[
        bool, flag("--more", "measure what takes long as well, with torch, and keep it: all paths, many heads' shares")
    ] = False,
    step: StepOption = None,
    attention: AttentionOption = None,
    task: TaskOption = None,
    score: ScoresOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa explain`."""
    folder = open_run_or_sweep(runs, run)
    if isinstance(folder, SweepDir):
        given = {"--heads": heads, "--why": why, "--more": more, "--step": step}
        refuse_options(folder, "explain", {**given, "--attention": attention, "--task": task, "--score": score})
        from mhsa_cli.commands.sweep_views import show_labels  # torch comes with it

        show_labels(folder, as_json)
        return
    at = find_step(folder, step)
    own = OwnCode(attention, task, score or ())
    maps = _measured_more(folder, own, at) if more else measured_maps(folder, own, at)
    if not more:
        tell_other_weights(folder, maps)
    chosen = None if heads is None else read_addresses(heads, maps, "--heads")
    report = report_of(with_scores(folder, own, maps, at))
    asked = [head for head in report.heads if chosen is None or head.address in chosen]
    texts = {head.address: explain_head(head) for head in asked}
    if as_json:
        model = {
            **verdict_to_dict(report.verdict),
            "text": f"{explain_model(report)}\n{explain_teamwork(report)}".rstrip(),
        }
        documents = [
            {"layer": head.layer, "head": head.head, **score_to_dict(head), "text": texts[head.address]}
            for head in asked
        ]
        print_json(
            {"run": str(folder.path), "step": maps.step, "task": maps.task, "verdict": model, "heads": documents}
        )
        return
    paper = Paper()
    paper.say(f"{heading(folder, maps.step)}\n")
    if maps.parts:
        paper.say(f"{layer_names(maps.parts)}\n")
    show_model(paper, report)
    paper.say()
    teamwork = explain_teamwork(report)
    if not why:
        paper.draw(head_lines(asked, paper.surface.width))
        if teamwork:
            paper.say(f"\n{teamwork}")
        show_own_scores(paper, asked)
        paper.next(f"mhsa explain {run_argument(folder.path)}{step_option(at)} --why")
        return
    if teamwork:
        paper.say(f"{teamwork}\n")
    for head in by_worth(asked):
        paper.say(f"{texts[head.address]}\n")
    if any(head.label is not None and head.scores for head in asked):  # their evidence has lifts
        paper.say(LIFT)
        paper.say("a label requires lift 0.5 and more than random heads reach; +-: standard error")
    show_own_scores(paper, asked)
    paper.next(f"mhsa inspect-heads {run_argument(folder.path)}{step_option(at)} --scores")


def _measured_more(folder: RunDir, own: OwnCode, step: int | None) -> HeadMaps:
    """Measure what takes long too; that of the newest step is kept in the run folder, beside what it adds to."""
    check_maps(folder)
    from mhsa_cli.jobs.trained_run import measure_more, measure_run  # imports torch

    return measure_more(folder, own) if step is None else measure_run(folder, own, step=step, more=True)
