"""`mhsa runs`: what has been trained here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.commands.options import JsonOption, RunsOption

if TYPE_CHECKING:
    from mhsa_cli.commands.printing import Paper


def runs(root: RunsOption = None, as_json: JsonOption = False) -> None:
    """List the runs, newest first, with how they ended."""
    from mhsa_cli.commands.printing import Paper, print_json
    from mhsa_cli.renderers.table import Column, table
    from mhsa_cli.runs.listing import TRAIN_ONE
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.runs.rundir import RunDir

    found = [_row(summary) for summary in RunDir.list(runs_root(root))]
    if as_json:
        print_json(found)
        return
    paper = Paper()
    if not found:
        paper.say(f"no run in {runs_root(root)} yet; {TRAIN_ONE}")
        _say_sweeps(paper, runs_root(root))
        return
    columns = [
        Column("run", flexible=True),
        Column("status", wraps=True),
        Column("task", drop=2),
        Column("heads", "right", drop=3),
        Column("step", "right"),
        Column("eval loss", "right"),
        Column("accuracy", "right"),
        Column("seconds", "right", drop=4),
        Column("started (UTC)", drop=5),
    ]
    rows = [[_text(key, row[key], paper.surface.glyphs.dash) for key in KEYS] for row in found]
    paper.draw(table(columns, rows, width=paper.width, surface=paper.surface))
    paper.say("\nnext: mhsa inspect-heads RUN, or mhsa curve RUN...")
    _say_sweeps(paper, runs_root(root))


def _say_sweeps(paper: Paper, root: Path) -> None:
    """Name the sweeps, whose trials are runs in folders of their own."""
    from mhsa_cli.runs.disk import show
    from mhsa_cli.runs.listing import list_inside, list_sweeps

    for path, trials in list_sweeps(root):
        paper.say(f"sweep: {show(path.name)} ({trials} {'trial' if trials == 1 else 'trials'}): {list_inside(path)}")


KEYS = ("run", "status", "task", "n_heads", "step", "eval_loss", "eval_accuracy", "seconds", "started")


def _row(summary: Any) -> dict[str, Any]:
    from mhsa_cli.runs.listing import final_figures

    facts = {key: summary.info.get(key) for key in ("task", "n_heads", "step", "parameters", "seed", "weights_sha256")}
    figures = final_figures(summary.info)
    return {
        "run": str(summary.path),
        "status": summary.status,
        **facts,
        "eval_loss": figures.get("eval_loss"),
        "eval_accuracy": figures.get("eval_accuracy"),
        "seconds": summary.seconds,
        "started": summary.started,
    }


def _text(key: str, value: Any, dash: str) -> str:
    """Write a figure for people; what is no figure (somebody edited the file) is shown as it is."""
    from mhsa_cli.commands.summary import nats

    formats = {"eval_accuracy": "{:.1%}".format, "eval_loss": nats, "seconds": "{:.1f}".format}
    if value is None:
        return dash if key in ("eval_loss", "eval_accuracy") else ""
    if key in formats and isinstance(value, float):
        return formats[key](value)
    if key == "run":
        return Path(value).name
    return str(value)[:16].replace("T", " ") if key == "started" else str(value)
