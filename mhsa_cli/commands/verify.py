"""`mhsa verify`: is a run what its training wrote? And does this machine repeat a training bit for bit?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, RunsOption
from mhsa_cli.errors import OtherVersionError, RunError, StorageError, UsageError
from mhsa_cli.runs.listing import CONFIG, is_sweep

if TYPE_CHECKING:
    from mhsa_cli.records.verify import Verification

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN | KEY=VALUE]...",
        help="A run or a sweep; left out, the newest run. With --resume-check, settings.",
    ),
]
ResumeCheckOption = Annotated[
    str | None,
    typer.Option(
        "--resume-check",
        metavar="CONFIG",
        help="Train this config twice in a temporary folder, once with a stop and a resume half-way, and compare bits.",
    ),
]


def verify(
    arguments: Arguments = None,
    resume_check: ResumeCheckOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa verify`."""
    if resume_check is not None:
        from mhsa_cli.jobs.resume_check import check_resume

        check_resume(resume_check, arguments or [], as_json)
        return
    if len(arguments or ()) > 1:
        raise UsageError(
            f"verify takes one run, found {len(arguments or ())}", "mhsa verify RUN; list the runs: mhsa runs"
        )
    from mhsa_cli.commands.output import Paper, print_json
    from mhsa_cli.jobs.verify import verify_run, verify_sweep
    from mhsa_cli.renderers.pictures.verify import verification_table
    from mhsa_cli.runs.run_dir import RunDir
    from mhsa_cli.text import escape

    path = _find(runs, arguments[0] if arguments else None)
    found = verify_sweep(path) if is_sweep(path) else verify_run(RunDir(path))
    if as_json:
        print_json(_document(path, found))
    else:
        paper = Paper()
        paper.draw(verification_table(found, width=paper.width, surface=paper.surface))
        if found.usable:
            paper.say("\nstill of use:")
            for line in found.usable:
                paper.say(f"  {line}")
    if found.damage:
        names = ", ".join(check.name for check in found.damage)
        raise RunError(f"{escape(path)} is damaged: {names}")
    if found.other_version:
        names = ", ".join(check.name for check in found.other_version)
        raise OtherVersionError(
            f"{escape(path)} was made by another version of mhsa: {names}",
            "of these nothing is known here" + ("; some others cannot be read" if found.unreadable else ""),
        )
    if found.unreadable:
        names = ", ".join(check.name for check in found.unreadable)
        raise StorageError(
            f"cannot read all of {escape(path)}: {names}", "of these nothing is known; the others are whole"
        )


def _find(root: Path | None, name: str | None) -> Path:
    """Find a sweep, or a run folder, also one whose run.json cannot be read or is gone."""
    from mhsa_cli.runs.listing import find_run, newest_run
    from mhsa_cli.runs.names import runs_root

    place = runs_root(root)
    if name is None:
        return newest_run(place)
    try:
        return find_run(place, name)
    except RunError:
        for path in (place / name, Path(name)):
            if (path / CONFIG).is_file() or is_sweep(path):
                return path
        raise


def _document(path: Path, found: Verification) -> dict[str, Any]:
    return {
        "run": str(path),
        "ok": not (found.damage or found.other_version or found.unreadable),
        "checks": [{"name": c.name, "state": c.state, "found": c.found} for c in found.checks],
        "usable": list(found.usable),
        "checkpoint": found.checkpoint,
    }
