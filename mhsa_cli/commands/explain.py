"""`mhsa explain`: what the heads do, in sentences with measured numbers."""

from __future__ import annotations

from mhsa_cli.commands.options import AttentionOption, HeadsOption, JsonOption, RunArgument, RunsOption
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.jobs.load_heads import heading, measured_maps, read_addresses, report_of
from mhsa_cli.jobs.load_run import open_run
from mhsa_cli.renderers.pictures.explain import explain as explain_heads
from mhsa_cli.renderers.pictures.explain import explain_head, explain_model
from mhsa_cli.runs.heads import score_to_dict, verdict_to_dict
from mhsa_cli.runs.listing import run_argument


def explain(
    run: RunArgument = None,
    heads: HeadsOption = None,
    attention: AttentionOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa explain`."""
    folder = open_run(runs, run)
    maps = measured_maps(folder, attention)
    chosen = None if heads is None else read_addresses(heads, maps, "--heads")
    report = report_of(maps)
    if as_json:
        told = [
            {"layer": head.layer, "head": head.head, **score_to_dict(head), "text": explain_head(head, summary)}
            for head, summary in zip(report.heads, maps.heads, strict=True)
            if chosen is None or head.address in chosen
        ]
        model = {**verdict_to_dict(report.verdict), "text": " ".join(explain_model(report))}
        print_json({"run": str(folder.path), "step": maps.step, "task": maps.task, "verdict": model, "heads": told})
        return
    paper = Paper()
    paper.say(f"{heading(folder, maps.step)}\n")
    for paragraph in explain_heads(maps, chosen):
        paper.say(f"{paragraph}\n")
    shown = [head for head in report.heads if chosen is None or head.address in chosen]
    if any(head.label is not None and head.scores for head in shown):  # their evidence tells lifts
        paper.say("Lift: 0 as a head that spreads evenly, 1 with all weight on the target, below 0 avoiding it.")
        paper.say("A name needs lift 0.5, and nats: 0.01 alone, or 5 % of what all patterns are worth.")
    paper.next(f"mhsa inspect-heads {run_argument(folder.path)} --scores")
