"""`mhsa explain`: describe what the heads do, in sentences with measured numbers."""

from __future__ import annotations

from mhsa_cli.commands.options import AttentionOption, HeadsOption, JsonOption, RunArgument, RunsOption
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.run_summary import show_model
from mhsa_cli.jobs.load_heads import heading, measured_maps, read_addresses, report_of
from mhsa_cli.jobs.load_run import open_run
from mhsa_cli.renderers.pictures.explain import explain_head, explain_model
from mhsa_cli.renderers.pictures.heads import LIFT
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
    heads_and_texts = [
        (head, explain_head(head, summary))
        for head, summary in zip(report.heads, maps.heads, strict=True)
        if chosen is None or head.address in chosen
    ]
    if as_json:
        model = {**verdict_to_dict(report.verdict), "text": explain_model(report)}
        documents = [
            {"layer": head.layer, "head": head.head, **score_to_dict(head), "text": text}
            for head, text in heads_and_texts
        ]
        print_json(
            {"run": str(folder.path), "step": maps.step, "task": maps.task, "verdict": model, "heads": documents}
        )
        return
    paper = Paper()
    paper.say(f"{heading(folder, maps.step)}\n")
    show_model(paper, report)
    for _, text in heads_and_texts:
        paper.say(f"\n{text}")
    if any(head.label is not None and head.scores for head, _ in heads_and_texts):  # their evidence has lifts
        paper.say(f"\n{LIFT}")
        paper.say("a label requires lift 0.5, and an effect of 0.01 nats or 5% of what attention is worth (Shapley)")
    paper.next(f"mhsa inspect-heads {run_argument(folder.path)} --scores")
