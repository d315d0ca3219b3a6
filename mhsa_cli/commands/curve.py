"""`mhsa curve`: plot the loss of one run or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from mhsa_cli.commands.options import JsonOption, RunsOption, argument, flag
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import AsOption, OutputOption, ThemeOption, WidthOption, picture_file, write_picture
from mhsa_cli.commands.run_summary import evaluated_on, levels_of, show_epochs
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.history import History
from mhsa_cli.jobs.load_run import next_look, open_run_or_sweep, refuse_options, refuse_origin, trial_argument
from mhsa_cli.jobs.run_config import tell_edited
from mhsa_cli.renderers.figures.sheet_options import Page
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.runs.listing import A_SWEEP, dropped_records
from mhsa_cli.runs.names import NEWEST
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure


def curve(
    names: Annotated[
        list[str] | None, argument("[RUN]...", "names or paths of runs, or of one sweep [default: newest run]")
    ] = None,
    log: Annotated[
        bool | None, flag("--log/--linear", "scale of the loss [default: linear; log for several runs]")
    ] = None,
    output: OutputOption = None,
    look: AsOption = None,
    width: WidthOption = None,
    theme: ThemeOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa curve`."""
    file = picture_file(output, look, width, theme)
    opened = [open_run_or_sweep(runs, name) for name in dict.fromkeys(names or [NEWEST])]
    folders = [folder for folder in opened if isinstance(folder, RunDir)]
    if sweep := next((folder for folder in opened if isinstance(folder, SweepDir)), None):
        if len(opened) > 1:
            hint = f"its trials are runs: mhsa curve {trial_argument(sweep)} RUN"
            raise UsageError(f"{escape(sweep.name)} is a sweep: it is plotted alone", hint, A_SWEEP)
        refuse_options(sweep, "curve", {"--linear": log is False})
        from mhsa_cli.commands.sweep_views import show_curves  # torch comes with it

        show_curves(sweep, file, as_json)
        return
    for folder in folders:
        refuse_origin(folder, "a curve")
        tell_edited(folder)
    single = len(folders) == 1
    histories = [History(folder, whole=as_json) for folder in folders]
    series = [s for f, h in zip(folders, histories, strict=True) for s in h.series(None if single else f.name)]
    levels, scale = levels_of(folders), log if log is not None else not single

    def picture(surface: Surface) -> Lines:
        return loss_curve(series, surface, levels=levels, log=scale)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.curve import loss_figure  # matplotlib comes with it

        return loss_figure(series, page, levels=levels, log=scale)

    title = "loss of " + ", ".join(f.name for f in folders)
    write_picture(file, lambda surface: picture(surface.narrow(8)), figure, title)
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
