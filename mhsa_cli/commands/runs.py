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


def runs(
    names: Annotated[
        list[str] | None, argument("[RUN | rm RUN...]", "name or path of one run [default: all runs, in a table]")
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
    yes: Annotated[bool, flag("--yes", "with rm: delete without asking")] = False,
    root: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa runs`."""
    chosen = sort is not None or reverse or filters or statuses
    if names and names[0] == RM:  # delete those that follow
        if chosen:
            message = "runs rm takes none of --sort, --reverse, --filter and --status"
            raise UsageError(message, "name the runs to delete: mhsa runs rm RUN...")
        from mhsa_cli.commands.delete_runs import delete_runs  # not for the list

        delete_runs(runs_root(root), names[1:], yes, as_json)
        return
    if yes:
        raise UsageError("--yes needs rm", "delete runs: mhsa runs rm RUN... --yes")
    if names:
        if len(names) > 1:
            raise UsageError(f"arguments: found {plural(len(names), 'run')}, wanted one", "list all: mhsa runs")
        if chosen:
            raise UsageError("RUN excludes --sort, --reverse, --filter and --status", "leave RUN out for the list")
        _show_one(root, names[0], as_json)
        return
    every = listing.list_runs(runs_root(root))
    some = [run for run in _filtered(every, filters or ()) if has_status(run, statuses or ())]
    found = [_row(run) for run in sort_runs(some, sort or next(iter(SORTS)), backwards=reverse)]
    if as_json:
        print_json(found)
        return
    paper = Paper()
    if not found:
        paper.say(
            f"none of {plural(len(every), 'run')} in {runs_root(root)} matches"
            if every
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
    if len(found) < len(every):
        paper.say(f"{len(found)} of {plural(len(every), 'run')}")
    paper.say("\nnext: mhsa inspect-heads RUN, or mhsa runs RUN")
    _say_sweeps(paper, runs_root(root))


def _filtered(every: Sequence[RunSummary], filters: Sequence[str]) -> Sequence[RunSummary]:
    """Keep the runs that satisfy every filter, of names and of settings. Raises: ConfigError."""
    if not any("=" in text for text in filters):
        return [run for run in every if has_name(run, filters)]
    from mhsa_cli.config.condition import read_condition  # imports pydantic
    from mhsa_cli.jobs.run_config import satisfying

    read = {text: read_condition(text) for text in filters}
    named = [run for run in every if has_name(run, [text for text, condition in read.items() if condition is None])]
    conditions = [condition for condition in read.values() if condition is not None]
    paths, unreadable = satisfying([run.path for run in named], conditions)
    if unreadable:
        tell(f"settings that cannot be read are not compared: {', '.join(path.name for path in unreadable)}")
    return [run for run in named if run.path in paths]


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
