"""`mhsa curve`: the loss of one run, or of several over each other."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunsOption
from mhsa_cli.commands.output import Paper, picture_path, picture_surface, print_json, write_picture
from mhsa_cli.commands.run_summary import common_chance, evaluated_on, show_epochs
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.load_run import next_look, tell_edited
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.runs.listing import dropped_records
from mhsa_cli.runs.names import NEWEST, runs_root
from mhsa_cli.runs.run_dir import RunDir

RunArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs to lay over each other; left out, the newest.")
]
LogOption = Annotated[
    bool | None, typer.Option("--log/--linear", help="Scale of the loss; left out, log for several runs.")
]


def curve(
    names: RunArguments = None,
    log: LogOption = None,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa curve`."""
    root, file = runs_root(runs), picture_path(output)
    folders = [RunDir.open(root, name) for name in dict.fromkeys(names or [NEWEST])]
    for folder in folders:
        tell_edited(folder)
    single = len(folders) == 1
    histories = [History(folder, whole=as_json) for folder in folders]
    series = [s for f, h in zip(folders, histories, strict=True) for s in h.series(None if single else f.name)]
    guess = common_chance(folders)
    baseline = None if guess is None else (guess, f"guessing {guess:.2f}")
    scale = log if log is not None else not single
    if file is not None:
        picture = loss_curve(series, picture_surface(file).narrow(8), baseline=baseline, log=scale)
        write_picture(file, picture, "loss of " + ", ".join(f.name for f in folders))
    if as_json:
        print_json({"runs": [_document(*one) for one in zip(folders, histories, strict=True)]})
        return
    paper = Paper()
    paper.draw(loss_curve(series, paper.surface, baseline=baseline, log=scale))
    if single:
        show_epochs(paper, histories[0].epochs)
    paper.offer(f"\nnext: {next_look(folders[0].path)}")


def _document(run: RunDir, history: History) -> dict[str, Any]:
    """Write one run's curve, and what a reader must know to hold it against another."""
    info = run.read_run_json()
    return {
        "run": str(run.path),
        "series": [{"role": one.role, "steps": one.steps, "loss": one.values} for one in history.series()],
        **evaluated_on(info),
        "dropped_records": dropped_records(info) + history.torn,
    }
