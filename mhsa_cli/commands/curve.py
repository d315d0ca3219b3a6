"""`mhsa curve`: plot the loss of one run or of several."""

from __future__ import annotations

from typing import Annotated, Any

from mhsa_cli.commands.options import JsonOption, OutputOption, RunsOption, argument, flag
from mhsa_cli.commands.output import Paper, print_json, write_picture
from mhsa_cli.commands.run_summary import baseline_of, evaluated_on, show_epochs
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.load_run import next_look
from mhsa_cli.jobs.run_config import tell_edited
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.runs.listing import dropped_records
from mhsa_cli.runs.names import NEWEST, runs_root
from mhsa_cli.runs.run_dir import RunDir


def curve(
    names: Annotated[list[str] | None, argument("[RUN]...", "names or paths of runs [default: newest]")] = None,
    log: Annotated[
        bool | None, flag("--log/--linear", "scale of the loss [default: linear; log for several runs]")
    ] = None,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa curve`."""
    root = runs_root(runs)
    folders = [RunDir.open(root, name) for name in dict.fromkeys(names or [NEWEST])]
    for folder in folders:
        tell_edited(folder)
    single = len(folders) == 1
    histories = [History(folder, whole=as_json) for folder in folders]
    series = [s for f, h in zip(folders, histories, strict=True) for s in h.series(None if single else f.name)]
    baseline, scale = baseline_of(folders), log if log is not None else not single

    def picture(surface: Surface) -> Lines:
        return loss_curve(series, surface, baseline=baseline, log=scale)

    write_picture(output, lambda surface: picture(surface.narrow(8)), "loss of " + ", ".join(f.name for f in folders))
    if as_json:
        print_json({"runs": [_document(*pair) for pair in zip(folders, histories, strict=True)]})
        return
    paper = Paper()
    paper.draw(picture(paper.surface))
    if single:
        show_epochs(paper, histories[0].epochs)
    paper.next(next_look(folders[0].path))


def _document(run: RunDir, history: History) -> dict[str, Any]:
    """Write one run's curve, and the facts that make it comparable with others."""
    info = run.read_run_json()
    return {
        "run": str(run.path),
        "series": [{"role": s.role, "steps": s.steps, "loss": s.values} for s in history.series()],
        **evaluated_on(info),
        "dropped_records": dropped_records(info) + history.torn,
    }
