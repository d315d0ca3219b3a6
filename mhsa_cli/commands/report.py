"""`mhsa report`: one page of a run, of two, or of a sweep, to look at in a browser."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mhsa_cli.commands.options import (
    AttentionsOption,
    JsonOption,
    RunsOption,
    TasksOption,
    argument,
    option,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.own_file import OwnCodes
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.load_run import open_run_or_sweep, refuse_options, trial_argument
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.report import report_run
from mhsa_cli.renderers.report.document import runs_document
from mhsa_cli.renderers.report.page import report_page
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.listing import A_SWEEP, run_argument
from mhsa_cli.runs.names import NEWEST
from mhsa_cli.runs.output_files import check_new
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape, quoted

ENDINGS = (".html", ".htm")


def check_page(given: Path | None) -> Path | None:
    """Check before any work that the wanted file is named as a page. Raises: UsageError."""
    if given is not None and given.suffix.lower() not in ENDINGS:
        better = escape(given.with_suffix(".html")) if given.name.strip("-.") else "report.html"
        raise unwanted("--output", given, "a name that ends in .html", f"for example: {better}")
    return given


def report(
    names: Annotated[
        list[str] | None, argument("[RUN]...", "names or paths of one run or two, or of a sweep [default: newest run]")
    ] = None,
    output: Annotated[
        Path | None,
        option("--output, -o", "FILE.html", "the page to write [default: report-RUN.html]", callback=check_page),
    ] = None,
    attention: AttentionsOption = None,
    task: TasksOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa report`."""
    folders = _open(list(dict.fromkeys(names or [NEWEST])), runs)
    first = folders[0]
    if isinstance(first, SweepDir):
        refuse_options(first, "report", {"--attention": attention, "--task": task})
    path = output or _free_path(folders) if output or not as_json else None
    if isinstance(first, SweepDir):
        from mhsa_cli.commands.sweep_views import page_of  # torch comes with it

        document = page_of(first)
    else:
        own = OwnCodes(attention or (), task or ())
        document = runs_document([report_run(folder, own) for folder in folders if isinstance(folder, RunDir)])
    if path is not None:
        title = " and ".join(escape(folder.name) for folder in folders)
        write_file_atomic(path, report_page(document, title=f"{title}: mhsa report").encode())
    if as_json:
        _print(document, path)
        return
    assert path is not None
    paper = Paper()
    paper.wrote([path])
    paper.say("open it in any browser; it needs no network")
    paper.next(f"python -m webbrowser {quoted(path)}")


def _print(document: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        tell(f"wrote {escape(path)}")
    print_json(document)


def _open(names: Sequence[str], runs: Path | None) -> list[RunDir | SweepDir]:
    """Open a run, two, or a sweep. Raises: RunError, UsageError for more of them."""
    if len(names) > 2:
        found = f"found {len(names)} runs, wanted one or two side by side"
        raise UsageError(found, f"for example: mhsa report {' '.join(map(quoted, names[:2]))}")
    opened = [open_run_or_sweep(runs, name) for name in names]
    sweep = next((folder for folder in opened if isinstance(folder, SweepDir)), None)
    if sweep is not None and len(opened) > 1:
        hint = f"its trials are runs: mhsa report {trial_argument(sweep)} RUN"
        raise UsageError(f"{escape(sweep.name)} is a sweep: its page stands alone", hint, A_SWEEP)
    return opened


def _free_path(folders: Sequence[RunDir | SweepDir]) -> Path:
    """Name the page after what it shows; an older one stays. Raises: UsageError."""
    path = Path(f"report-{'-'.join(folder.name for folder in folders)}.html")
    if os.path.lexists(path):
        again = " ".join(run_argument(folder.path) for folder in folders)
        raise UsageError((path, " already exists"), f"to replace it: mhsa report {again} -o {quoted(path)}", "taken")
    check_new(path, "-o FILE.html")
    return path
