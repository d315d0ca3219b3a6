"""`mhsa timeline`: when every head became what it is, beside the loss; or its maps replayed."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunArgument, RunsOption
from mhsa_cli.errors import MhsaError, RunError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.text import Head

if TYPE_CHECKING:
    from mhsa_cli.commands.output import Paper
    from mhsa_cli.records import HeadHistory, Series, SnapshotRecord
    from mhsa_cli.renderers.kit.console import Surface
    from mhsa_cli.renderers.kit.text_lines import Lines
    from mhsa_cli.runs.run_dir import RunDir

TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="Show this score for all heads, such as induction.")
]
ReplayOption = Annotated[bool, typer.Option("--replay", help="Play the attention maps over training, on a terminal.")]
FIGURES = ("entropy", "uniformity", "confidence", "positionality")


def timeline(
    run: RunArgument = None,
    target: TargetOption = None,
    replay: ReplayOption = False,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa timeline`."""
    from mhsa_cli.commands.output import Paper, picture_path, picture_surface, print_json, write_picture
    from mhsa_cli.commands.run_summary import common_chance
    from mhsa_cli.core.heads.history import histories, largest_drop
    from mhsa_cli.jobs.load_heads import is_stale
    from mhsa_cli.jobs.load_run import next_look, open_run, tell_edited
    from mhsa_cli.records.thinning import Thinned
    from mhsa_cli.renderers.pictures.timeline import timeline_picture
    from mhsa_cli.runs.listing import run_argument

    file, folder = picture_path(output), open_run(runs, run)
    paper = Paper()
    if replay:
        _check_replay(paper, as_json, run_argument(folder.path))
    tell_edited(folder)
    snapshots = _snapshots(folder)
    _check_target(target, snapshots)
    stored, series = _stored(folder), _losses(folder)
    found = histories(snapshots, _points(series), _labels(folder, stored), target)
    drop, chance = largest_drop(_points(series)), common_chance([folder])
    baseline = None if chance is None else (chance, f"guessing {chance:.2f}")
    drawn = [Thinned(zip(one.steps, one.values, strict=True)).series(one.name, one.role) for one in series]

    def picture(width: int, surface: Surface) -> Lines:
        return timeline_picture(drawn, found, width=width, surface=surface, baseline=baseline, drop=drop, target=target)

    if file is not None:
        surface = picture_surface(file)
        write_picture(file, picture(surface.width, surface), f"heads of {folder.name} over training")
    if as_json:
        print_json(_document(folder, snapshots, found, drop))
        return
    if replay:
        _replay(paper, snapshots, stored, series)
    else:
        paper.draw(picture(paper.width, paper.surface))
        for note in [] if is_stale(folder, stored) else _notes(stored):
            paper.say(note)
    again = paper.surface.animate and not replay
    more = f"mhsa timeline {run_argument(folder.path)} --replay" if again else next_look(folder.path)
    paper.offer(f"\nnext: {more}")


def _snapshots(folder: RunDir) -> list[SnapshotRecord]:
    """Read the run's snapshots. Raises: RunError if there is none, UsageError if its block shows no weights."""
    from mhsa_cli.jobs.custom_attention import check_maps
    from mhsa_cli.runs.listing import run_argument
    from mhsa_cli.runs.snapshots import snapshots_from_lines

    check_maps(folder)
    found = snapshots_from_lines(folder.read_head_scores())
    if not found:
        hint = "runs of older versions have none; train it again, under a new name, to have them"
        raise RunError(f"{run_argument(folder.path)} has no scores of its heads over training in heads.jsonl", hint)
    return found


def _check_target(target: str | None, snapshots: Sequence[SnapshotRecord]) -> None:
    known = list(dict.fromkeys(name for one in snapshots for head in one.heads for name in head.lifts))
    if target is not None and target not in known:
        raise UsageError(
            f"--target {target}: there is no such score in this run",
            f"there is: {', '.join(known)}" if known else "these rows are too short for any",
        )


def _check_replay(paper: Paper, as_json: bool, name: str) -> None:
    """Refuse to replay where nothing can move. Raises: UsageError."""
    if as_json:
        raise UsageError("--replay and --json do not go together: a replay is for a terminal", "leave one of them out")
    if not paper.surface.animate:
        hint = f"the maps at the end, in a file: mhsa inspect-heads {name} -o maps.svg"
        here = "here the output is a file, a log or a plain terminal"
        raise UsageError(f"--replay needs a terminal that can redraw lines: {here}", hint)


def _losses(folder: RunDir) -> list[Series]:
    """Read the losses, each at the number of updates before it, as the snapshots are counted.

    A training step's loss is measured before its own update.
    """
    from mhsa_cli.jobs.history import History

    return [
        replace(one, steps=array("q", (step - 1 for step in one.steps))) if one.role == "train" else one
        for one in History(folder, whole=True).series()
    ]


def _points(series: Sequence[Series]) -> Iterator[tuple[int, float]]:
    """Go through the training losses, one after the other."""
    for one in series:
        if one.role == "train":
            yield from ((step, loss) for step, loss in zip(one.steps, one.values, strict=True) if loss is not None)


def _stored(folder: RunDir) -> dict[str, Any]:
    """Read heads.json; nothing where it is missing, and a word where it cannot be read: the timeline stands alone."""
    from mhsa_cli.runs.listing import HEADS

    if not (folder.path / HEADS).exists():
        return {}
    try:
        return folder.read_heads()
    except MhsaError as error:
        tell(f"note: {error.message}; labels and tokens are left out")
        return {}


def _labels(folder: RunDir, stored: Mapping[str, Any]) -> dict[Head, tuple[str, str]]:
    """Find the heads that were named, as (target, label), unless training went on after that."""
    from mhsa_cli.jobs.load_heads import is_stale

    heads = stored.get("heads")
    if not isinstance(heads, list) or is_stale(folder, stored):
        return {}
    found: dict[Head, tuple[str, str]] = {}
    for head in heads:
        if isinstance(head, dict):
            layer, number, target, label = (head.get(key) for key in ("layer", "head", "target", "label"))
            if not isinstance(layer, int) or not isinstance(number, int):
                continue
            if isinstance(target, str) and target and isinstance(label, str) and label:
                found[Head(layer, number)] = (target, label)
    return found


def _notes(stored: Mapping[str, Any]) -> list[str]:
    """Collect what a reader must know of the task, and that the patterns do not matter, where that was measured."""
    verdict = stored.get("verdict")
    idle = isinstance(verdict, dict) and verdict.get("pattern_matters") is False
    texts = [verdict.get("text") if isinstance(verdict, dict) and idle else None, stored.get("note")]
    return [text for text in texts if isinstance(text, str) and text]


def _replay(
    paper: Paper,
    snapshots: Sequence[SnapshotRecord],
    stored: Mapping[str, Any],
    series: Sequence[Series],
) -> None:
    """Play the maps. Raises: typer.Exit on Ctrl-C, with the code of a command that was interrupted."""
    from mhsa_cli.renderers.pictures.replay import play
    from mhsa_cli.runs.snapshots import snapshot_maps

    task, tokens = stored.get("task"), stored.get("tokens")
    words = [str(token) for token in tokens] if isinstance(tokens, list) else []
    frames = [
        (snapshot_maps(one, task if isinstance(task, str) else "heads", words), _loss_at(one.step, series))
        for one in snapshots
    ]
    try:
        play(paper.console, paper.surface, frames)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _loss_at(step: int, series: Sequence[Series]) -> float | None:
    """Find the loss known at a step: the last one measured up to it."""
    points = (
        p for one in series if one.role == "train" for p in zip(*map(reversed, (one.steps, one.values)), strict=True)
    )
    return next((loss for at, loss in points if at <= step and loss is not None and math.isfinite(loss)), None)


def _document(
    folder: RunDir,
    snapshots: Sequence[SnapshotRecord],
    found: Sequence[HeadHistory],
    drop: tuple[int, float] | None,
) -> dict[str, Any]:
    heads = []
    for number, one in enumerate(found):
        over = [snapshot.heads[number] for snapshot in snapshots]
        names = dict.fromkeys(name for head in over for name in head.lifts)
        scores = {name: [head.lifts.get(name) for head in over] for name in names}
        scores |= {name: [getattr(head, name) for head in over] for name in FIGURES}
        heads.append(
            {
                "layer": one.layer,
                "head": one.head,
                "name": one.name,
                "target": one.target or None,
                "label": one.label or None,
                "lifts": one.lifts,
                "onset": one.onset,
                "width": one.width,
                "lead": one.lead,
                "scores": scores,
                "offset_distances": [head.distance for head in over],
            }
        )
    return {
        "run": str(folder.path),
        "steps": [snapshot.step for snapshot in snapshots],
        "largest_drop": None if drop is None else {"step": drop[0], "nats": drop[1]},
        "heads": heads,
    }
