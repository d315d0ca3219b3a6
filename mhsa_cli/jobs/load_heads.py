"""What commands that look at heads share: the stored maps and measurements, or fresh ones where there are none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.run_config import tell_edited
from mhsa_cli.records.heads import HeadMaps, HeadReport
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.listing import HEADS, WEIGHTS
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape

NO_MAPS = "no_maps"  # in run.json: why a run has no maps
_ADDRESS = re.compile(r"[lL](\d{1,4})(?:\.[hH](\d{1,5}))?|(\d{1,5})", re.ASCII)


def stored_maps(folder: RunDir) -> HeadMaps | None:
    """Read heads.json; None where training was cut off before it was written, or went on after it."""
    if not (folder.path / HEADS).exists():
        return None
    content = folder.read_heads()
    if is_stale(folder, content):
        return None
    tell_edited(folder)
    return maps_from_dict(content)


def is_stale(folder: RunDir, heads: Mapping[str, Any]) -> bool:
    """Tell whether training went on after heads.json was measured, or broke off before its weights were noted."""
    step, own, saved = heads.get("step"), heads.get(WEIGHTS), folder.checkpoints()
    moved_on = isinstance(step, int) and bool(saved) and saved[-1].step != step
    return moved_on or (own is not None and own != folder.read_run_json().get(WEIGHTS))


def without_maps(run: RunDir) -> str:
    """Say why a run has no maps of heads; nothing if it has."""
    return escape(run.read_run_json().get(NO_MAPS) or "")


def check_maps(run: RunDir) -> None:
    """Refuse to show heads of a run that has no maps. Raises: UsageError."""
    why = without_maps(run)
    if why:
        raise UsageError(f"{escape(run.name)} has no maps of heads: {why}", FOR_MAPS)


def measured_maps(folder: RunDir, attention: str | None) -> HeadMaps:
    """Give maps and measurements: the stored ones without torch, else those of the newest checkpoint.

    `attention` names the block of a run that was trained with somebody's own. Raises: UsageError if it shows no maps.
    """
    check_maps(folder)
    stored = stored_maps(folder)
    if stored is not None and stored.report is not None:
        return stored
    from mhsa_cli.jobs.trained_run import measure_run  # torch comes with it

    return measure_run(folder, attention)


def heading(folder: RunDir, step: int) -> str:
    """Name a run and the step that is shown, and say so where training did not end as planned."""
    info = folder.read_run_json()
    if info["status"] == "finished":
        return f"{folder.name}, step {step}"
    planned = f" of {info['total_steps']}" if info.get("total_steps") is not None else ""
    return f"{folder.name}, step {step}{planned}: the run is {escape(info['status'])}"


def report_of(maps: HeadMaps) -> HeadReport:
    """Give the measurements of maps that have them."""
    assert maps.report is not None
    return maps.report


def read_addresses(text: str, maps: HeadMaps, option: str) -> list[Head]:
    """Read heads as `L0.H3,L1.H0`, a whole layer as `L0`, a number as that head of every layer.

    Raises: UsageError naming what is no head of this run.
    """
    known = [head.address for head in maps.heads]
    found: list[Head] = []
    for word in text.replace(" ", ",").split(","):
        match = _ADDRESS.fullmatch(word)
        layer, head = ("", "") if match is None else (match[1], match[2] or match[3])
        wanted = [a for a in known if match and (not layer or a[0] == int(layer)) and (not head or a[1] == int(head))]
        if word and not wanted:
            there = f"heads: L0.H0 to {maps.heads[-1].name}; L0 is all of layer 0, a number that head of every layer"
            raise UsageError(f"{option}: `{escape(word)}` is no head of this run", there)
        found += [a for a in wanted if a not in found]
    if not found:
        raise UsageError(f"{option} names no head", "for example: L0.H3, or L0.H0,L0.H1")
    return found


def chosen_heads(maps: HeadMaps, layer: str | None, heads: str | None) -> list[Head]:
    """List the heads that are in this layer, `1` or `L1`, and among these addresses; without either, all.

    Raises: UsageError naming what is no layer or no head of this run.
    """
    chosen = [head.address for head in maps.heads]
    if layer is not None:
        match = re.fullmatch(r"[lL]?(\d{1,4})", layer.strip(), re.ASCII)
        inside = [address for address in chosen if match is not None and address[0] == int(match[1])]
        if not inside:
            there = f"layers: L0 to L{maps.heads[-1].layer}; a head: --head {maps.heads[-1].name}"
            raise UsageError(f"--layer: `{escape(layer)}` is no layer of this run", there)
        chosen = inside
    if heads is not None:
        named = read_addresses(heads, maps, "--head")
        both = [a for a in named if a in chosen]
        if not both:
            raise UsageError(
                f"--head {escape(heads)} names no head of --layer {escape(str(layer))}", "leave out --layer"
            )
        chosen = both
    return chosen
