"""`mhsa timeline`: show when each head learned its pattern, with the loss, or replay its maps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.keyboard import keyboard
from mhsa_cli.commands.options import (
    HeadsOption,
    JsonOption,
    RunOrSweepArgument,
    RunsOption,
    ScoreOption,
    flag,
    option,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import (
    AsOption,
    ThemeOption,
    WidthOption,
    only_option,
    output_option,
    picture_file,
    write_picture,
)
from mhsa_cli.commands.run_summary import levels_of
from mhsa_cli.config.own_score import short_score
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.load_heads import chosen_heads
from mhsa_cli.jobs.load_run import next_look, open_run_or_sweep, refuse_options, refuse_origin
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import tell_edited
from mhsa_cli.jobs.timeline import Timeline, frames_of, timeline_of
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.thinning import Thinned
from mhsa_cli.renderers.figures.sheet_options import TIMELINE_PARTS, Page
from mhsa_cli.renderers.files import FILM, ending_of
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.replay import Frame, film, play
from mhsa_cli.renderers.pictures.timeline import timeline_picture
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.codec import plain
from mhsa_cli.runs.heads import FIGURES
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import Head, escape

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure


def timeline(
    run: RunOrSweepArgument = None,
    target: Annotated[
        str | None, option("--target", "NAME", "score all heads on one target, such as previous [default: their own]")
    ] = None,
    score: ScoreOption = None,
    replay: Annotated[bool, flag("--replay", "play the attention maps over training, on a terminal")] = False,
    head: HeadsOption = None,
    output: Annotated[Path | None, output_option(FILM)] = None,
    look: AsOption = None,
    width: WidthOption = None,
    theme: ThemeOption = None,
    only: Annotated[str | None, only_option(*TIMELINE_PARTS)] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa timeline`."""
    gif = output if output is not None and ending_of(output) == FILM else None
    if gif is not None:
        _check_film(gif, replay, {"--as": look, "--width": width, "--theme": theme, "--only": only, "--json": as_json})
    file = None if gif is not None else picture_file(output, look, width, theme, only)
    folder, paper = open_run_or_sweep(runs, run), Paper()
    if isinstance(folder, SweepDir):
        refuse_options(folder, "timeline", {"--target": target, "--score": score, "--replay": replay, "--heads": head})
        from mhsa_cli.commands.sweep_views import show_onsets  # torch comes with it

        show_onsets(folder, file, as_json)
        return
    if replay and gif is None:
        _check_replay(paper, as_json, run_argument(folder.path))
    elif head is not None and not replay:
        raise UsageError("--heads needs --replay: the timeline shows every head", "add --replay")
    refuse_origin(folder, "a timeline")
    tell_edited(folder)
    if target is not None and score is not None:
        raise UsageError("--target and --score exclude each other", "keep one of them")
    found = timeline_of(folder, target, score)
    drawn = [Thinned(one.points).series(one.name, one.role) for one in found.series]

    about: dict[str, Any] = {
        "levels": levels_of([folder]),
        "drop": found.drop,
        "target": target if score is None else short_score(score),
        "scale": found.scale,
        "in_context": found.in_context,
    }

    def picture(surface: Surface) -> Lines:
        return timeline_picture(drawn, found.histories, surface, **about)

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.lifts import timeline_figure  # matplotlib comes with it

        return timeline_figure(drawn, found.histories, page, **about)

    write_picture(file, picture, figure, f"heads of {folder.name} over training")
    if as_json:
        print_json(_document(folder, found))
        return
    if gif is not None:
        _write_film(gif, folder, found, head)
    elif replay:
        _replay(paper, folder, found, head)
    else:
        paper.draw(picture(paper.surface))
        for note in [*map(words, found.orders), *found.notes]:
            paper.say(note)
    moves = paper.surface.animate and not replay
    paper.next(f"mhsa timeline {run_argument(folder.path)} --replay" if moves else next_look(folder.path))


def _check_film(file: Path, replay: bool, others: Mapping[str, object]) -> None:
    """Raise UsageError where a film is not to be had."""
    if not replay:
        raise UsageError(f"{escape(file)} is for a film: it needs --replay", "add --replay")
    if given := [name for name, value in others.items() if value]:
        raise UsageError(f"{given[0]} does not go with {escape(file)}, a film", f"leave {given[0]} out")
    from mhsa_cli.renderers.files.png import need_pillow

    need_pillow("GIF", instead="")


def _check_replay(paper: Paper, as_json: bool, name: str) -> None:
    """Raise UsageError where lines cannot be redrawn."""
    if as_json:
        raise UsageError("--replay and --json do not go together: a replay is for a terminal", "leave one of them out")
    if not paper.surface.animate:
        hint = f"the maps at the end, in a file: mhsa inspect-heads {name} -o maps.svg"
        here = "here the output is a file, a log or a plain terminal"
        raise UsageError(f"--replay needs a terminal that can redraw lines: {here}", hint)


def _frames(folder: RunDir, found: Timeline, heads: str | None) -> tuple[list[Frame], list[Head] | None]:
    """List the frames of a replay, and the heads that are asked for.

    Raises: UsageError for an unknown head, and where no maps are kept.
    """
    frames = frames_of(found.snapshots, found.series, found.maps)
    if not frames:
        name = run_argument(folder.path)
        raise UsageError(f"{name} has no maps over training", f"the scores of its heads: mhsa timeline {name}")
    return frames, None if heads is None else chosen_heads(frames[0][0], None, heads)


def _write_film(file: Path, folder: RunDir, found: Timeline, heads: str | None) -> None:
    """Write the maps over training, of all heads or of --heads."""
    frames, chosen = _frames(folder, found, heads)
    from mhsa_cli.renderers.files.gif import to_gif

    write_file_atomic(file, to_gif(*film(frames, chosen)))
    tell(f"wrote {escape(file)}")


def _replay(paper: Paper, folder: RunDir, found: Timeline, heads: str | None) -> None:
    """Play the maps, of all heads or of --heads.

    Raises: typer.Exit on Ctrl-C, with the code of a command that was interrupted; UsageError for an unknown head.
    """
    frames, chosen = _frames(folder, found, heads)
    try:
        with keyboard() as keys:
            play(paper.console, paper.surface, frames, heads=chosen, keys=keys)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _document(folder: RunDir, found: Timeline) -> dict[str, Any]:
    heads, drop = [], found.drop
    names = dict.fromkeys(name for snapshot in found.snapshots for name in snapshot.own_uniform)
    uniform = {name: [snapshot.own_uniform.get(name) for snapshot in found.snapshots] for name in names}
    for number, (one, claims) in enumerate(zip(found.histories, found.claims, strict=True)):
        over = [snapshot.heads[number] for snapshot in found.snapshots]
        names = dict.fromkeys(name for head in over for name in head.lifts)
        scores = {name: [head.lifts.get(name) for head in over] for name in names}
        scores |= {name: [getattr(head, name) for head in over] for name in FIGURES}
        own = {name: [head.own_scores.get(name) for head in over] for name in uniform}
        heads.append(
            {
                **{key: getattr(one, key) for key in ("layer", "head", "name")},
                **{key: getattr(one, key) or None for key in ("target", "label")},
                **{key: plain(getattr(one, key)) for key in ("lifts", "final", "onset", "rise", "width", "lead")},
                "claims": plain(claims),
                "scores": scores,
                **({"own_scores": own} if own else {}),
                "offset_distances": [head.distance for head in over],
            }
        )
    return {
        "run": str(folder.path),
        "steps": [snapshot.step for snapshot in found.snapshots],
        "in_context": [snapshot.in_context for snapshot in found.snapshots],
        "largest_drop": None if drop is None else {"step": drop.step, "nats": drop.nats, **plain(drop.interval)},
        "order": plain(found.orders),
        **({"own_uniform": uniform} if uniform else {}),
        "heads": heads,
    }
