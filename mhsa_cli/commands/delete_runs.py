"""`mhsa runs rm`: delete runs and sweeps, after one question."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.errors import ANSWERED_NO, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.renderers.kit.console import is_tty
from mhsa_cli.runs.deletion import Deletable, delete, find_deletable, remove_leftovers
from mhsa_cli.text import byte_size, escape, plural


def delete_runs(root: Path, names: Sequence[str], yes: bool, as_json: bool) -> None:
    """Delete runs and sweeps: all of them are checked first, and none is deleted if one is refused."""
    if not names:
        raise UsageError("runs rm: found no run, wanted RUN...", "list the runs: mhsa runs")
    found = list({item.path: item for item in (find_deletable(root, name) for name in names)}.values())
    if not yes:
        _ask(root, found)
    remove_leftovers(root)
    paper = Paper()
    for item in found:
        delete(item)
        if not as_json:
            paper.say(f"deleted {item.path} ({byte_size(item.bytes)})")
    if as_json:
        print_json({"deleted": [{"run": str(item.path), "trials": item.trials, "bytes": item.bytes} for item in found]})


def _ask(root: Path, found: Sequence[Deletable]) -> None:
    """List what will go and ask once. Raises: UsageError where nobody can answer; SystemExit if the answer is no."""
    if not is_tty(sys.stdin):
        raise UsageError("runs rm: stdin is not a terminal, so nobody can be asked", "delete without asking: add --yes")
    for item in found:
        trials = "" if item.trials is None else f"sweep of {plural(item.trials, 'trial')}, "
        tell(f"  {escape(item.path.name)}: {trials}{byte_size(item.bytes)}")
    sweeps = sum(item.trials is not None for item in found)
    counts = {"run": len(found) - sweeps, "sweep": sweeps}
    what = " and ".join(plural(count, noun) for noun, count in counts.items() if count)
    total = byte_size(sum(item.bytes for item in found))
    print(f"delete {what} ({total}) from {escape(root)}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        tell("nothing was deleted")
        raise SystemExit(ANSWERED_NO)
