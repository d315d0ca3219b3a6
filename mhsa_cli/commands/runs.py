"""`mhsa runs`: list the runs, or show the facts of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from mhsa_cli.commands.options import JsonOption, RunsOption, argument
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.jobs.load_run import next_look
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.runs import listing
from mhsa_cli.runs.json_file import UPDATE
from mhsa_cli.runs.names import runs_root
from mhsa_cli.text import escape, plural


def runs(
    run: Annotated[str | None, argument("[RUN]", "name or path of one run [default: all runs, in a table]")] = None,
    root: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa runs`."""
    if run is not None:
        _show_one(root, run, as_json)
        return
    found = [_row(summary) for summary in listing.list_runs(runs_root(root))]
    if as_json:
        print_json(found)
        return
    paper = Paper()
    if not found:
        paper.say(f"no run in {runs_root(root)} yet; {listing.TRAIN_ONE}")
        _say_sweeps(paper, runs_root(root))
        return
    columns = [
        Column("run", itemgetter("run"), whole=True),
        Column("status", itemgetter("status"), wraps=True),
        Column("task", itemgetter("task"), drop=3),
        Column("heads", itemgetter("n_heads"), "right", drop=4),
        Column("step", itemgetter("step"), "right", drop=2),
        Column("eval loss", itemgetter("eval_loss"), "right", drop=1),
        Column("accuracy", itemgetter("eval_accuracy"), "right"),
        Column("seconds", itemgetter("seconds"), "right", drop=5),
        Column("started", itemgetter("started"), drop=6),
    ]
    rows = [{key: _text(key, value, paper.surface.glyphs.dash) for key, value in row.items()} for row in found]
    paper.draw(table(columns, rows, paper.surface))
    paper.say("\nnext: mhsa inspect-heads RUN, or mhsa runs RUN")
    _say_sweeps(paper, runs_root(root))


def _show_one(root: Path | None, name: str, as_json: bool) -> None:
    """Print a line for each known fact of one run, damage included."""
    summary = listing.summarise(listing.find_run(runs_root(root), name))
    row = _row(summary)
    if as_json:
        print_json(row)
        return
    paper = Paper()
    for key, value in row.items():
        if value is not None:
            paper.say(f"{key}: {value if key == 'run' else _text(key, value, paper.surface.glyphs.dash)}")
    if summary.problem == "newer":
        paper.next(UPDATE)
    elif summary.problem is None:
        paper.next(next_look(summary.path))
    else:
        paper.next(f"mhsa verify {listing.run_argument(summary.path)}")


def _say_sweeps(paper: Paper, root: Path) -> None:
    """Print the sweeps, whose trials are runs inside their folders."""
    for path, trials in listing.list_sweeps(root):
        paper.say(f"sweep: {escape(path.name)} ({plural(trials, 'trial')}): {listing.list_inside(path)}")


def _row(summary: Any) -> dict[str, Any]:
    facts = {key: summary.info.get(key) for key in ("task", "n_heads", "step", "parameters", "seed", "weights_sha256")}
    figures = listing.final_figures(summary.info)
    return {
        "run": str(summary.path),
        "status": summary.status,
        "problem": summary.problem,
        **facts,
        "eval_loss": figures.get("eval_loss"),
        "eval_accuracy": figures.get("eval_accuracy"),
        "seconds": summary.seconds,
        "started": summary.started,
    }


def _text(key: str, value: Any, dash: str) -> str:
    if value is None:
        return dash if key in ("eval_loss", "eval_accuracy") else ""
    formats: dict[str, Callable[[Any], str]] = {
        "run": lambda path: Path(path).name,
        "eval_loss": partial(fixed, decimals=4),
        "eval_accuracy": percents,
        "seconds": partial(fixed, decimals=1),
        "started": lambda time: f"{str(time)[:16].replace('T', ' ')}Z",
    }
    return formats.get(key, str)(value)
