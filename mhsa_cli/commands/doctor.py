"""`mhsa doctor`: the machine, torch, the libraries, the terminal and the disk, for reports."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

from mhsa_cli.commands.first_words import until_done
from mhsa_cli.commands.options import JsonOption, RunsOption, flag
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.jobs.doctor import examine, failure
from mhsa_cli.records.doctor import Check, Examination, Terminal
from mhsa_cli.renderers.kit.console import is_tty
from mhsa_cli.renderers.pictures.doctor import doctor_table, way_out
from mhsa_cli.runs.names import runs_root


def doctor(
    runs: RunsOption = None,
    verbose: Annotated[bool, flag("--verbose, -v", "also every library and every extra")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa doctor`."""
    paper = Paper()
    with until_done(said=not as_json):
        found = examine(runs_root(runs), _terminal(paper))
    error = failure(found)
    if as_json:
        print_json(_document(found))
    else:
        paper.draw(doctor_table(found, paper.surface, verbose))
        if not verbose:
            paper.next("mhsa doctor -v")
    if error is not None:
        raise error


def _terminal(paper: Paper) -> Terminal:
    surface = paper.surface
    streams = (is_tty(stream) for stream in (sys.stdin, sys.stdout, sys.stderr))
    encoding = getattr(paper.console.file, "encoding", None) or "unknown"
    return Terminal(surface.width, surface.height, surface.depth, surface.glyphs.name, encoding, *streams)


def _document(found: Examination) -> dict[str, Any]:
    return {"ok": not found.problems, "checks": [_row(check) for check in found.checks]}


def _row(check: Check) -> dict[str, Any]:
    row = asdict(check)
    del row["minor"]
    return {"id": row.pop("id"), "state": check.state, **row, "way_out": way_out(check) or None}
