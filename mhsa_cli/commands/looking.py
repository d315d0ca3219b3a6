"""What commands that look at heads share: the stored maps and measurements, or fresh ones where there are none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mhsa_cli.commands.own_block import check_maps, check_shown
from mhsa_cli.errors import UsageError
from mhsa_cli.records import HeadMaps, HeadReport
from mhsa_cli.runs.disk import show
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.listing import HEADS
from mhsa_cli.runs.rundir import RunDir

Address = tuple[int, int]


def stored_maps(folder: RunDir) -> HeadMaps | None:
    """Read heads.json; None where training was cut off before it was written, or went on after it."""
    if not (folder.path / HEADS).exists():
        return None
    content = folder.read_heads()
    return None if is_stale(folder, content) else maps_from_dict(content)


def is_stale(folder: RunDir, heads: Mapping[str, Any]) -> bool:
    """Tell whether training went on after the content of heads.json was measured."""
    step, saved = heads.get("step"), folder.checkpoints()
    return isinstance(step, int) and bool(saved) and saved[-1].step != step


def measured_maps(folder: RunDir, attention: str | None = None) -> HeadMaps:
    """Give maps and measurements: the stored ones without torch, else those of the newest checkpoint.

    `attention` names the block of a run that was trained with somebody's own. Raises: UsageError if it shows no maps.
    """
    check_maps(folder)
    stored = stored_maps(folder)
    if stored is not None and stored.report is not None:
        return stored
    from mhsa_cli.commands.opening import trained
    from mhsa_cli.core.heads.capture import head_maps
    from mhsa_cli.core.heads.report import head_report

    model, task, config, step = trained(folder, attention)
    check_shown(model)
    maps = head_maps(model, task, config.train.seed, step)
    return replace(maps, report=head_report(model, task, config.train.seed))


def heading(folder: RunDir, step: int) -> str:
    """Name a run and the step that is shown, and say so where training did not end as planned."""
    info = folder.read_run_json()
    status, total = info.get("status"), info.get("total_steps")
    if status in (None, "finished"):
        return f"{folder.name}, step {step}"
    planned = f" of {total}" if isinstance(total, int) else ""
    return f"{folder.name}, step {step}{planned}: the run is {show(str(status))}"


def report_of(maps: HeadMaps) -> HeadReport:
    """Give the measurements of maps that have them."""
    assert maps.report is not None
    return maps.report


def maps_on_tokens(folder: RunDir, tokens: str, attention: str | None = None) -> HeadMaps:
    """Load the newest checkpoint and capture its heads on the given tokens."""
    from mhsa_cli.commands.opening import trained
    from mhsa_cli.core.heads.capture import head_maps, read_tokens

    check_maps(folder)
    model, task, config, step = trained(folder, attention)
    check_shown(model)
    return head_maps(model, task, config.train.seed, step, read_tokens(tokens, task, config.max_seq_len))


def read_addresses(text: str, maps: HeadMaps, option: str) -> list[Address]:
    """Read heads as `L0.H3,L1.H0`, or a whole layer as `L0`. Raises: UsageError naming what is no head of this run."""
    known = [(head.layer, head.head) for head in maps.heads]
    found: list[Address] = []
    for word in text.replace(" ", ",").split(","):
        match = re.fullmatch(r"[lL](\d{1,4})(?:\.[hH](\d{1,5}))?", word)
        wanted = [] if match is None else [a for a in known if a[0] == int(match[1])]
        if match is not None and match[2] is not None:
            wanted = [a for a in wanted if a[1] == int(match[2])]
        if word and not wanted:
            there = f"heads: L0.H0 to {maps.heads[-1].name}; L0 is all of layer 0"
            raise UsageError(f"{option}: `{word}` is no head of this run", there)
        found += [a for a in wanted if a not in found]
    if not found:
        raise UsageError(f"{option} names no head", "for example: L0.H3, or L0.H0,L0.H1")
    return found
