"""`mhsa verify`: check the files of a run or sweep, or whether a resumed training repeats bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, RunsOption, argument, option
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.load import load_config
from mhsa_cli.config.overrides import is_override
from mhsa_cli.errors import ANSWERED_NO, OtherVersionError, RunError, StorageError, UsageError, unwanted
from mhsa_cli.jobs.load_run import next_look
from mhsa_cli.jobs.verify import verify_run, verify_sweep
from mhsa_cli.records.verify import Verification
from mhsa_cli.renderers.pictures.verify import verification_table
from mhsa_cli.runs.listing import CONFIG, find_run, is_sweep, list_inside, newest_run
from mhsa_cli.runs.names import runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape, quoted


def verify(
    arguments: Annotated[
        list[str] | None,
        argument(
            "[RUN] [KEY=VALUE]...", "run or sweep, by name or path [default: newest]\nsettings for --resume-check"
        ),
    ] = None,
    resume_check: Annotated[
        str | None, option("--resume-check", "CONFIG", "train twice, once with a resume, and compare bits")
    ] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa verify`."""
    given = arguments or []
    if resume_check is not None:
        _check_resume(resume_check, given, as_json)
        return
    if len(given) > 1:
        hint = "list runs: mhsa runs; settings are only for --resume-check"
        raise UsageError(f"arguments: found {len(given)} runs, wanted 1", hint)
    path = _find(runs, given[0] if given else None)
    found = verify_sweep(path) if is_sweep(path) else verify_run(RunDir(path))
    if as_json:
        print_json(_document(path, found))
    else:
        paper = Paper()
        paper.offer(f"{path}\n")
        paper.draw(verification_table(found, paper.surface))
        if found.usable:
            paper.say("\nstill usable:")
            for line in found.usable:
                paper.offer(f"  {line}")
        if not (found.damage or found.other_version or found.unreadable):
            paper.next(list_inside(path) if is_sweep(path) else next_look(path))
    names = ", ".join(check.name for check in found.damage or found.other_version or found.unreadable)
    if found.damage:
        raise RunError(f"{escape(path)} is damaged: {names}")
    if found.other_version:
        unread = "; some other files cannot be read" if found.unreadable else ""
        message = f"{escape(path)} was made by another version of mhsa: {names}"
        raise OtherVersionError(message, f"these files were not checked{unread}")
    if found.unreadable:
        raise StorageError(f"cannot read all of {escape(path)}: {names}", "all other files are whole")


def _check_resume(file: str, overrides: Sequence[str], as_json: bool) -> None:
    """Print whether a resumed training equals an uninterrupted one, bit for bit; exit 7 if not."""
    if is_override(file) and not Path(file).exists():
        settings = " ".join(map(quoted, [file, *overrides]))
        raise unwanted("--resume-check", file, "a config file", f"mhsa verify --resume-check CONFIG {settings}")
    config = load_config(file, overrides)
    from mhsa_cli.jobs.resume_check import check_resume  # imports torch: only after the config is checked

    result = check_resume(config)
    total, half, difference, machine = result.total, result.half, result.difference, result.machine
    if as_json:
        document = {"equal": not difference, "steps": total, "stopped_at": half, "difference": difference or None}
        print_json({**document, **machine})
    else:
        place = f"{machine['device']}, threads: {machine['threads']}, torch {machine['torch']}"
        same = "equal, bit for bit: weights, moments, state and metrics"
        verdict = f"not equal: {difference}" if difference else same
        Paper().say(f"{verdict}\n{total} steps against {half} + {total - half} after a resume; {place}")
    if difference:
        raise typer.Exit(ANSWERED_NO)


def _find(root: Path | None, name: str | None) -> Path:
    """Find a sweep or a run folder, even one without a readable run.json."""
    root = runs_root(root)
    if name is None:
        return newest_run(root)
    try:
        return find_run(root, name)
    except RunError:
        for path in (root / name, Path(name)):
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
