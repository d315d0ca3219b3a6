"""`mhsa compare`: what two runs have in common, from their settings to their heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mhsa_cli.commands.options import AttentionsOption, JsonOption, OutputOption, RunsOption, argument
from mhsa_cli.commands.output import Paper, print_json, write_picture
from mhsa_cli.commands.run_summary import baseline_of
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.compare import Comparison, compare_runs
from mhsa_cli.jobs.history import History
from mhsa_cli.records.heads import Matching
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines, stacked
from mhsa_cli.renderers.kit.ticks import nats
from mhsa_cli.renderers.pictures.compare import beside, differing_settings, matched_heads, unmatched
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape

FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {  # by key: what each is called, and how it is written
    "eval_loss": ("eval loss", nats),
    "eval_accuracy": ("accuracy", "{:.1%}".format),
    "seconds": ("time", "{:.1f} s".format),
    "steps": ("steps", "{:,}".format),
}
TwoRuns = Annotated[list[str] | None, argument("RUN RUN", "Two runs, by name or path.")]


def compare(
    names: TwoRuns = None,
    attention: AttentionsOption = None,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa compare`."""
    given = names or []
    if len(given) != 2:
        more = "; more curves over each other: mhsa curve RUN RUN RUN" if len(given) > 2 else ""
        raise UsageError(
            f"compare takes two runs, found {len(given)}", f"mhsa compare RUN RUN; list the runs: mhsa runs{more}"
        )
    root = runs_root(runs)
    first, second = (RunDir.open(root, name) for name in given)
    found = compare_runs(first, second, attention or [])
    write_picture(output, lambda surface: _picture(found, surface), f"{first.name} beside {second.name}")
    if as_json:
        print_json(_document(found))
        return
    paper = Paper()
    paper.draw(_picture(found, paper.surface))
    paper.next(f"mhsa inspect-heads {run_argument(second.path)}")


def _picture(found: Comparison, surface: Surface) -> Lines:
    names = _names(*found.folders)
    distinct = {folder.path: (folder, name) for folder, name in zip(found.folders, names, strict=True)}
    series = [line for folder, name in distinct.values() for line in History(folder).series(name)]
    figures = [
        [title, *("" if final[key] is None else write(final[key]) for final in found.finals)]
        for key, (title, write) in FIGURES.items()
    ]
    heads = (
        unmatched(found.note, surface)
        if found.matching is None
        else matched_heads(found.matching, found.labels, names, surface, found.note)
    )
    return stacked(
        [
            differing_settings(*found.settings, names, surface),
            beside("final", figures, names, surface),
            loss_curve(series, surface, baseline=baseline_of(found.folders), log=True),
            heads,
        ]
    )


def _names(first: RunDir, second: RunDir) -> tuple[str, str]:
    """Name both runs; if they lie in two places under one name, by their paths."""
    if first.name == second.name and first.path != second.path:
        return escape(first.path), escape(second.path)
    return escape(first.name), escape(second.name)


def _document(found: Comparison) -> dict[str, Any]:
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
