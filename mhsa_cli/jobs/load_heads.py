"""Attention maps and head scores of a run, stored or measured now, and the heads that a command selects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import tell_edited
from mhsa_cli.records.heads import HeadMaps, HeadReport
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.listing import HEADS, WEIGHTS, origin_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.weights_digest import weights_digest
from mhsa_cli.text import Head, escape, from_file

NO_MAPS = "no_maps"  # in run.json: why a run has no maps
_ADDRESS = re.compile(r"[lL](\d{1,4})(?:\.[hH](\d{1,5}))?|(\d{1,5})", re.ASCII)


def stored_maps(folder: RunDir) -> HeadMaps | None:
    """Read heads.json; None if training ended before it was written or continued after it."""
    if not (folder.path / HEADS).exists():
        return None
    content = folder.read_heads()
    if is_stale(folder, content):
        return None
    tell_edited(folder)
    return maps_from_dict(content)


def tell_other_weights(folder: RunDir, maps: HeadMaps) -> None:
    """Warn if the checkpoint holds other weights than those that were measured."""
    if has_other_weights(folder, maps):
        tell(f"warning: the checkpoint of step {maps.step} holds other weights than those measured here ({HEADS})")


def has_other_weights(folder: RunDir, maps: HeadMaps) -> bool:
    """Whether the checkpoint holds other weights than those that were measured, without loading it."""
    info = folder.read_run_json()
    measured = info.get(WEIGHTS) if info.get("step") == maps.step else None
    return measured is not None and weights_digest(folder.path, maps.step) not in (None, measured)


def is_stale(folder: RunDir, heads: Mapping[str, Any]) -> bool:
    """Whether training continued after heads.json was measured, or ended before its weights were recorded."""
    step, weights, saved = heads.get("step"), heads.get(WEIGHTS), folder.checkpoints()
    continued = isinstance(step, int) and bool(saved) and saved[-1].step != step
    return continued or (weights is not None and weights != folder.read_run_json().get(WEIGHTS))


def without_maps(run: RunDir) -> str:
    """Return the reason that a run has no maps of heads; empty if it has."""
    return escape(run.read_run_json().get(NO_MAPS) or "")


def check_maps(run: RunDir) -> None:
    """Refuse a run without maps of heads. Raises: UsageError."""
    why = without_maps(run)
    if why:
        raise UsageError(f"{escape(run.name)} has no maps of heads: {why}", FOR_MAPS)


def measured_maps(folder: RunDir, own: OwnCode, step: int | None = None) -> HeadMaps:
    """Return maps and scores: the stored ones, without torch, else those of a checkpoint, by default the newest.

    Stored maps are of the end of the run: those of another `step` are measured now.
    Raises: UsageError if its custom attention returns no weights.
    """
    check_maps(folder)
    if step is None or step == folder.read_run_json().get("step"):
        stored = stored_maps(folder)
        if stored is not None and stored.report is not None and step in (None, stored.step):
            return stored
    from mhsa_cli.jobs.trained_run import measure_run  # imports torch

    return measure_run(folder, own, step=step)


def heading(folder: RunDir, step: int) -> str:
    """Return the run's name and step, and its status if training did not finish."""
    info = folder.read_run_json()
    if (origin := origin_of(info)) is not None:
        return f"{folder.name}, {from_file(origin)}"
    planned = f" of {info['total_steps']}" if info.get("total_steps") is not None else ""
    if info["status"] == "finished":
        return f"{folder.name}, step {step}{planned if step != info.get('step') else ''}"
    return f"{folder.name}, step {step}{planned}: the run is {escape(info['status'])}"


def report_of(maps: HeadMaps) -> HeadReport:
    """Return the report of maps that were measured on the task."""
    assert maps.report is not None
    return maps.report


def read_addresses(text: str, maps: HeadMaps, option: str) -> list[Head]:
    """Parse heads: `L0.H3,L1.H0`, a layer as `L0`, a number as that head of every layer.

    Raises: UsageError for a head that the run does not have.
    """
    known = [head.address for head in maps.heads]
    selected: list[Head] = []
    for word in text.replace(" ", ",").split(","):
        match = _ADDRESS.fullmatch(word)
        layer, head = ("", "") if match is None else (match[1], match[2] or match[3])
        named = [a for a in known if match and (not layer or a[0] == int(layer)) and (not head or a[1] == int(head))]
        if word and not named:
            heads = f"a head of this run, L0.H0 to {maps.heads[-1].name}"
            raise unwanted(option, word, heads, "L0 is all of layer 0, 3 is H3 of every layer")
        selected += [address for address in named if address not in selected]
    if not selected:
        raise UsageError(f"{option}: found no head", "for example: L0.H3, or L0.H0,L0.H1")
    return selected


def chosen_heads(maps: HeadMaps, layer: str | None, heads: str | None) -> list[Head]:
    """Select the heads of --layer (`1` or `L1`) that are among --heads; all where an option is not given.

    Raises: UsageError for a layer or head that the run does not have.
    """
    chosen = [head.address for head in maps.heads]
    if layer is not None:
        match = re.fullmatch(r"[lL]?(\d{1,4})", layer.strip(), re.ASCII)
        inside = [address for address in chosen if match is not None and address[0] == int(match[1])]
        if not inside:
            last = maps.heads[-1]
            wanted = f"a layer of this run, L0 to L{last.layer}"
            raise unwanted("--layer", layer, wanted, f"one head: --heads {last.name}")
        chosen = inside
    if heads is not None:
        in_layer = chosen
        chosen = [address for address in read_addresses(heads, maps, "--heads") if address in in_layer]
        if not chosen:
            raise unwanted("--heads", heads, f"a head of --layer {escape(str(layer))}", "remove --layer")
    return chosen
