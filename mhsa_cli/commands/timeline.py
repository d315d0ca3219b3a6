"""`mhsa timeline`: when every head became what it is, beside the loss; or its maps replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunArgument, RunsOption
from mhsa_cli.commands.output import Paper, picture_path, picture_surface, print_json, write_picture
from mhsa_cli.commands.run_summary import common_chance
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.load_run import next_look, open_run, tell_edited
from mhsa_cli.jobs.timeline import Timeline, timeline_of
from mhsa_cli.records import Series
from mhsa_cli.records.thinning import Thinned
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.replay import play
from mhsa_cli.renderers.pictures.timeline import timeline_picture
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.snapshots import snapshot_maps

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
    file, folder = picture_path(output), open_run(runs, run)
    paper = Paper()
    if replay:
        _check_replay(paper, as_json, run_argument(folder.path))
    tell_edited(folder)
    found = timeline_of(folder, target)
    chance = common_chance([folder])
    baseline = None if chance is None else (chance, f"guessing {chance:.2f}")
    drawn = [Thinned(zip(one.steps, one.values, strict=True)).series(one.name, one.role) for one in found.series]

    def picture(surface: Surface) -> Lines:
        return timeline_picture(drawn, found.histories, surface, baseline=baseline, drop=found.drop, target=target)

    if file is not None:
        surface = picture_surface(file)
        write_picture(file, picture(surface), f"heads of {folder.name} over training")
    if as_json:
        print_json(_document(folder, found))
        return
    if replay:
        _replay(paper, found)
    else:
        paper.draw(picture(paper.surface))
        for note in found.notes:
            paper.say(note)
    again = paper.surface.animate and not replay
    more = f"mhsa timeline {run_argument(folder.path)} --replay" if again else next_look(folder.path)
    paper.offer(f"\nnext: {more}")


def _check_replay(paper: Paper, as_json: bool, name: str) -> None:
    """Refuse to replay where nothing can move. Raises: UsageError."""
    if as_json:
        raise UsageError("--replay and --json do not go together: a replay is for a terminal", "leave one of them out")
    if not paper.surface.animate:
        hint = f"the maps at the end, in a file: mhsa inspect-heads {name} -o maps.svg"
        here = "here the output is a file, a log or a plain terminal"
        raise UsageError(f"--replay needs a terminal that can redraw lines: {here}", hint)


def _replay(paper: Paper, found: Timeline) -> None:
    """Play the maps. Raises: typer.Exit on Ctrl-C, with the code of a command that was interrupted."""
    task, tokens = found.stored.get("task"), found.stored.get("tokens")
    words = [str(token) for token in tokens] if isinstance(tokens, list) else []
    frames = [
        (snapshot_maps(one, task if isinstance(task, str) else "heads", words), _loss_at(one.step, found.series))
        for one in found.snapshots
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


def _document(folder: RunDir, found: Timeline) -> dict[str, Any]:
    heads, drop = [], found.drop
    for number, one in enumerate(found.histories):
        over = [snapshot.heads[number] for snapshot in found.snapshots]
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
        "steps": [snapshot.step for snapshot in found.snapshots],
        "largest_drop": None if drop is None else {"step": drop[0], "nats": drop[1]},
        "heads": heads,
    }
