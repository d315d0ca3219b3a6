"""`mhsa runs`: list the runs, or show the facts of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mhsa_cli.commands.options import JsonOption, RunsOption, argument, flag, option
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.errors import UPDATE, UsageError
from mhsa_cli.jobs.load_run import next_look
from mhsa_cli.jobs.messages import tell
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.runs import listing
from mhsa_cli.runs.listing import RunSummary
from mhsa_cli.runs.names import RM, runs_root
from mhsa_cli.runs.selection import SORTS, STATUSES, has_name, has_status, sort_runs
from mhsa_cli.text import either, escape, plural

if TYPE_CHECKING:
    Sort = StrEnum
    Status = StrEnum
else:
    Sort = StrEnum("Sort", {name.upper(): name for name in SORTS})
    Status = StrEnum("Status", {name.upper(): name for name in STATUSES})


SHOWN = 50  # runs that the table shows without --all
STARTED = next(iter(SORTS))
LIST_OPTIONS = "--sort, --reverse, --filter, --status and --all"


def runs(
    names: Annotated[
        list[str] | None, argument("[RUN | rm RUN...]", "name or path of one run [default: a table of runs]")
    ] = None,
    sort: Annotated[
        Sort | None,
        option("--sort", "FIELD", f"{either(SORTS)}: newest, A, best or longest first [default: started]"),
    ] = None,
    reverse: Annotated[bool, flag("--reverse", "sort the other way round")] = False,
    filters: Annotated[
        list[str] | None,
        option("--filter", "TEXT", "only names with this text or pattern, or a setting: n_heads=4,8; repeatable"),
    ] = None,
    statuses: Annotated[
        list[Status] | None, option("--status", "STATUS", f"only runs that are {either(STATUSES)}; repeatable")
    ] = None,
    every: Annotated[bool, flag("--all", f"show all runs [default: the first {SHOWN}; --json has all]")] = False,
    yes: Annotated[bool, flag("--yes", "with rm: delete without asking")] = False,
    root: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa runs`."""
    chosen = sort is not None or reverse or filters or statuses or every
    if names and names[0] == RM:  # delete those that follow
        if chosen:
            raise UsageError(f"runs rm takes none of {LIST_OPTIONS}", "name the runs to delete: mhsa runs rm RUN...")
        from mhsa_cli.commands.delete_runs import delete_runs  # not for the list

        delete_runs(runs_root(root), names[1:], yes, as_json)
        return
    if yes:
        raise UsageError("--yes needs rm", "delete runs: mhsa runs rm RUN... --yes")
    if names:
        if len(names) > 1:
            raise UsageError(f"arguments: found {plural(len(names), 'run')}, wanted one", "list all: mhsa runs")
        if chosen:
            raise UsageError(f"RUN excludes {LIST_OPTIONS}", "leave RUN out for the list")
        _show_one(root, names[0], as_json)
        return
    folders = listing.run_folders(runs_root(root))
    some, limit = _filtered(folders, filters or ()), None if every or as_json else SHOWN
    by, count = sort or STARTED, len(some)
    if by == STARTED and not reverse and not statuses:
        summaries = listing.newest_first(some, limit)  # reads no more files than it shows
    else:
        kept = [run for run in listing.newest_first(some) if has_status(run, statuses or ())]
        summaries, count = sort_runs(kept, by, backwards=reverse), len(kept)
    found = [_row(run) for run in summaries[:limit]]
    if as_json:
        print_json(found)
        return
    paper = Paper()
    if not found:
        paper.say(
            f"none of {plural(len(folders), 'run')} in {runs_root(root)} matches"
            if folders
            else f"no run in {runs_root(root)} yet; {listing.TRAIN_ONE}"
        )
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
    if len(found) < count:
        matching = f"{count:,} that match, of " if count < len(folders) else ""
        paper.say(f"the first {len(found)} of {matching}{plural(len(folders), 'run')}; --all shows the rest")
    elif count < len(folders):
        paper.say(f"{count} of {plural(len(folders), 'run')}")
    paper.say("\nnext: mhsa inspect-heads RUN, or mhsa runs RUN")
    _say_sweeps(paper, runs_root(root))


def _filtered(folders: Sequence[Path], filters: Sequence[str]) -> Sequence[Path]:
    """Keep the runs that satisfy every filter, of names and of settings. Raises: ConfigError."""
    if not any("=" in text for text in filters):
        return [folder for folder in folders if has_name(folder.name, filters)]
    from mhsa_cli.config.condition import read_condition  # imports pydantic
    from mhsa_cli.jobs.run_config import satisfying

    read = {text: read_condition(text) for text in filters}
    texts = [text for text, condition in read.items() if condition is None]
    conditions = [condition for condition in read.values() if condition is not None]
    named = [folder for folder in folders if has_name(folder.name, texts)]
    paths, unreadable = satisfying(named, conditions)
    if unreadable:
        tell(f"settings that cannot be read are not compared: {', '.join(path.name for path in unreadable)}")
    return [folder for folder in named if folder in paths]


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


def _row(summary: RunSummary) -> dict[str, Any]:
    keys = ("task", "n_heads", "step", listing.ENDED_BY, "parameters", "seed", "weights_sha256")
    facts = {key: summary.info.get(key) for key in keys}
    figures = listing.final_figures(summary.info)
    origin = listing.origin_of(summary.info)
    if origin is not None:
        facts["step"] = None
    return {
        "run": str(summary.path),
        "status": summary.status,
        "problem": summary.problem,
        **facts,
        "origin": origin,
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
