"""`mhsa verify`: is a run what its training wrote? And does this machine repeat a training bit for bit?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, RunsOption, argument, option
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.load import load_config
from mhsa_cli.config.overrides import is_override
from mhsa_cli.errors import ANSWERED_NO, OtherVersionError, RunError, StorageError, UsageError
from mhsa_cli.jobs.verify import verify_run, verify_sweep
from mhsa_cli.records.verify import Verification
from mhsa_cli.renderers.pictures.verify import verification_table
from mhsa_cli.runs.listing import CONFIG, find_run, is_sweep, newest_run
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape, quoted

Arguments = Annotated[
    list[str] | None,
    argument("[RUN | KEY=VALUE]...", "A run or a sweep; left out, the newest run. With --resume-check, settings."),
]
ResumeCheckOption = Annotated[
    str | None,
    option(
        "--resume-check",
        "CONFIG",
        "Train this config twice in a temporary folder, once with a stop and a resume half-way, and compare bits.",
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
        _check_resume(resume_check, arguments or [], as_json)
        return
    given = arguments or []
    if len(given) > 1:
        raise UsageError(f"verify takes one run, found {len(given)}", "mhsa verify RUN; list the runs: mhsa runs")
    path = _find(runs, given[0] if given else None)
    found = verify_sweep(path) if is_sweep(path) else verify_run(RunDir(path))
    if as_json:
        print_json(_document(path, found))
    else:
        paper = Paper()
        paper.draw(verification_table(found, paper.surface))
        if found.usable:
            paper.say("\nstill of use:")
            for line in found.usable:
                paper.say(f"  {line}")
    names = ", ".join(check.name for check in found.damage or found.other_version or found.unreadable)
    if found.damage:
        raise RunError(f"{escape(path)} is damaged: {names}")
    if found.other_version:
        more = "; some others cannot be read" if found.unreadable else ""
        said = f"{escape(path)} was made by another version of mhsa: {names}"
        raise OtherVersionError(said, f"of these nothing is known here{more}")
    if found.unreadable:
        hint = "of these nothing is known; the others are whole"
        raise StorageError(f"cannot read all of {escape(path)}: {names}", hint)


def _check_resume(file: str, overrides: Sequence[str], as_json: bool) -> None:
    """Say whether a training with a stop half-way has the bits of the same one without; exit 7 if not."""
    if is_override(file) and not Path(file).exists():
        more = " ".join(map(quoted, [file, *overrides]))
        raise UsageError(
            f"--resume-check {escape(file)}: a config file comes first, then its settings",
            f"mhsa verify --resume-check FILE {more}",
        )
    config = load_config(file, overrides)
    from mhsa_cli.jobs.resume_check import check_resume  # torch: not before the config is known to be good

    found = check_resume(config)
    total, half, difference, own = found.total, found.half, found.difference, found.machine
    if as_json:
        document = {"equal": not difference, "steps": total, "stopped_at": half, "difference": difference or None}
        print_json({**document, **own})
    else:
        where = f"{own['device']}, threads: {own['threads']}, torch {own['torch']}"
        said = f"not equal: {difference}" if difference else "equal, bit for bit: weights, moments, state and metrics"
        Paper().say(f"{said}\n{total} steps against {half} + {total - half} after a resume; {where}")
    if difference:
        raise typer.Exit(ANSWERED_NO)


def _find(root: Path | None, name: str | None) -> Path:
    """Find a sweep, or a run folder, also one whose run.json cannot be read or is gone."""
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
