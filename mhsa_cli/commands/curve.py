"""`mhsa curve`: the loss of one run, or of several over each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunsOption

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
    """Show the loss of a run again, or several runs over each other.

    Example: mhsa curve copy-h4 copy-h8
    """
    from mhsa_cli.commands.printing import Paper, print_json, svg_surface, write_svg
    from mhsa_cli.commands.summary import epochs_of, history, show_epochs
    from mhsa_cli.renderers.curve import loss_curve
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.runs.rundir import RunDir

    root = runs_root(runs)
    folders = [RunDir.open(root, name) for name in dict.fromkeys(names or ())] or [RunDir.newest(root)]
    single = len(folders) == 1
    series = [s for folder in folders for s in history(folder, None if single else folder.name)]
    if as_json:
        rows = [
            {"run": f.name, "series": [{"role": s.role, "steps": s.steps, "loss": s.values} for s in history(f)]}
            for f in folders
        ]
        print_json({"runs": rows})
        return
    chance = {(f.read_run_json().get("chance") or {}).get("loss") for f in folders}
    guess = chance.pop() if len(chance) == 1 else None
    options = {
        "baseline": None if guess is None else (guess, f"guessing {guess:.2f}"),
        "log": log if log is not None else not single,
    }
    paper = Paper()
    paper.draw(loss_curve(series, width=paper.width, surface=paper.surface, **options))
    if single:
        paper.say()
        show_epochs(paper, epochs_of(folders[0]))
    if output is not None:
        surface = svg_surface()
        title = "loss of " + ", ".join(f.name for f in folders)
        paper.say("\n" + write_svg(Path(output), loss_curve(series, width=88, surface=surface, **options), title))
    paper.say(f"\nnext: mhsa inspect-heads {folders[0].name}")
