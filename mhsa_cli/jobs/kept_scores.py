"""Scores of the user's own that a run or a sweep keeps: their names, and the digests of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mhsa_cli.config.own_file import file_digest, split
from mhsa_cli.config.own_score import SCORE, check_names, short_score
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape, quoted

KEY = "own_scores"  # in run.json: file, name, form and sha256 of each
TARGET, VALUE = "target", "value"  # the forms


def kept_scores(info: Mapping[str, Any]) -> dict[str, str]:
    """List the scores that a run keeps, as FILE.py:NAME, with the sha256 of their files."""
    return {f"{one['file']}:{one['name']}": one["sha256"] for one in info.get(KEY) or ()}


def kept_score(folder: RunDir, given: str) -> tuple[str, str]:
    """Return the short name and the form of a score that a run keeps; notes a changed file, which does not run.

    Raises: UsageError if it keeps no such score.
    """
    check_names([given])
    short, info = short_score(given), folder.read_run_json()
    entry = next((one for one in info.get(KEY) or () if one["name"] == short), None)
    if entry is None:
        message = f"{escape(folder.name)} was trained without the score {escape(given)}"
        again = f"mhsa explain {run_argument(folder.path)} --score {quoted(given)}"
        hint = f"over training: mhsa train --score {quoted(given)}; of the trained heads: {again}"
        raise UsageError(message, hint, SCORE.code)
    if entry["sha256"] != file_digest(given):
        tell(f"note: {escape(split(given)[0])} changed since {escape(folder.name)} was trained; its figures are older")
    return short, str(entry["form"])


def name_again(kept: Mapping[str, str], given: Sequence[str], who: str, allow_changed: bool | None = None) -> list[str]:
    """Find among the options --score of a resume those that name the scores that were kept, in their order.

    A changed file is refused unless `allow_changed`; None: nothing allows it.
    Raises: UsageError if one is missing or new; RunError if a file changed.
    """
    check_names(given)
    short = {short_score(name): name for name in given}
    for name in kept:
        if short_score(name) not in short:
            message = f"{who} keeps the score {escape(name)}, which is not imported without permission"
            raise UsageError(message, f"to let this command import it: --score {escape(name)}", SCORE.code)
    found = [short.pop(short_score(name)) for name in kept]
    if short:
        message = f"{who} was begun without the score {escape(next(iter(short)))}"
        raise UsageError(message, "mhsa inspect-heads and mhsa explain measure it on the trained heads", SCORE.code)
    for name, recorded in zip(found, kept.values(), strict=True):
        if (now := file_digest(name)) != recorded:
            digests = f"found sha256 {now[:12]}, wanted {escape(recorded)[:12]}"
            message = f"{escape(split(name)[0])} is not the file {who} began with: {digests}"
            if not allow_changed:
                way = "restore the file"
                raise RunError(message, way if allow_changed is None else f"{way}, or accept it: --allow-inexact")
            tell(f"note: {message}; results may differ")
    return found


def keep_own_scores(maps: HeadMaps, before: HeadMaps | None) -> HeadMaps:
    """Take the scores of the user's own from maps of the same weights, which were measured before."""
    if maps.report is None or before is None or before.report is None:
        return maps
    known = {head.address: head.own_scores for head in before.report.heads}
    heads = [replace(head, own_scores=known.get(head.address, {})) for head in maps.report.heads]
    return replace(maps, report=replace(maps.report, heads=heads))
