"""`mhsa inspect-heads`: every head's attention map, what was measured of it, and what happens without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunArgument, RunsOption
from mhsa_cli.commands.own_block import AttentionOption
from mhsa_cli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from mhsa_cli.records import HeadMaps
    from mhsa_cli.runs.rundir import RunDir

LayerOption = Annotated[int | None, typer.Option("--layer", metavar="N", help="One layer only, from 0.")]
HeadOption = Annotated[int | None, typer.Option("--head", metavar="N", help="One head only, from 0, large.")]
TokensOption = Annotated[
    str | None, typer.Option("--tokens", metavar='"3 5 9"', help="Look at these ids (for text: these characters).")
]
ScoresOption = Annotated[bool, typer.Option("--scores", help="Every score of every head instead of the maps.")]
CircuitsOption = Annotated[
    bool, typer.Option("--circuits", help="What the heads' weights compute instead of the maps.")
]
AblateOption = Annotated[
    str | None,
    typer.Option("--ablate", metavar="L0.H3[,..]", help="Loss and accuracy without these heads; L0 is all of layer 0."),
]
DefinitionOption = Annotated[
    str | None,
    typer.Option("--definition", metavar="olsson2022", help="With --scores: also the induction score of that paper."),
]


def inspect_heads(
    run: RunArgument = None,
    layer: LayerOption = None,
    head: HeadOption = None,
    tokens: TokensOption = None,
    scores: ScoresOption = False,
    circuits: CircuitsOption = False,
    ablate: AblateOption = None,
    definition: DefinitionOption = None,
    attention: AttentionOption = None,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where every head looks and what was measured of it; one colour scale for all heads.

    Example: mhsa inspect-heads copy-h4 --head 0 --tokens "3 5 9 63 3 5"
    """
    from mhsa_cli.commands.looking import maps_on_tokens, measured_maps
    from mhsa_cli.commands.opening import open_run
    from mhsa_cli.commands.own_block import only_if_ours
    from mhsa_cli.commands.printing import picture_path
    from mhsa_cli.commands.resuming import run_config

    file, folder = picture_path(output), open_run(runs, run)
    asked = [
        name
        for name, given in (("--scores", scores), ("--circuits", circuits), ("--ablate", ablate is not None))
        if given
    ]
    _check(asked, tokens, definition)
    if circuits:
        only_if_ours(run_config(folder), "--circuits", "reads the weights of our attention")
    if ablate is not None:
        only_if_ours(run_config(folder), "--ablate", "replaces what heads of our attention say")
    maps = measured_maps(folder, attention) if tokens is None else maps_on_tokens(folder, tokens, attention)
    _check_head(maps, layer, head)
    if not asked:
        _show_maps(folder, maps, layer, head, file, as_json)
        return
    from mhsa_cli.commands import inspect_more

    chosen = [(h.layer, h.head) for h in maps.heads if layer in (None, h.layer) and head in (None, h.head)]
    more = inspect_more.More(folder, maps, chosen, attention)
    parts = [more.scores(definition)] if scores else []
    parts += [more.circuits()] if circuits else []
    parts += [more.ablation(ablate)] if ablate is not None else []
    inspect_more.show(folder, maps, parts, file, as_json)


def _check(asked: list[str], tokens: str | None, definition: str | None) -> None:
    """Refuse options that have nothing to say to each other."""
    if asked and tokens is not None:
        raise UsageError(f"{asked[0]} is measured on the task's rows, --tokens shows maps", "give one of the two")
    if definition is not None and "--scores" not in asked:
        raise UsageError("--definition goes with --scores")
    if definition not in (None, "olsson2022"):
        raise UsageError(f"--definition: found `{definition}`, wanted `olsson2022`")


def _check_head(maps: HeadMaps, layer: int | None, head: int | None) -> None:
    """Refuse a layer or head that is not there."""
    layers, heads = len(maps.weights), max(map(len, maps.weights), default=0)
    if layer is not None and not 0 <= layer < layers:
        raise UsageError(f"there is no layer {layer}", f"layers: 0 to {layers - 1}")
    if head is not None and not 0 <= head < heads:
        raise UsageError(f"there is no head {head}", f"heads: 0 to {heads - 1}")


def _show_maps(
    folder: RunDir, maps: HeadMaps, layer: int | None, head: int | None, file: Path | None, as_json: bool
) -> None:
    from mhsa_cli.commands.looking import heading
    from mhsa_cli.commands.printing import Paper, picture_surface, print_json, run_argument, write_picture
    from mhsa_cli.commands.summary import heads_picture, show_heads

    if file is not None:
        surface = picture_surface(file)
        picture = heads_picture(maps, surface.width, surface, layer, head)
        write_picture(file, picture, f"attention maps of {folder.name}")
    if as_json:
        print_json({"run": str(folder.path), **_chosen(maps, layer, head)})
        return
    paper = Paper()
    paper.say(f"{heading(folder, maps.step)}\n")
    show_heads(paper, maps, layer, head)
    paper.say(f"\nnext: mhsa {'explain' if maps.report is not None else 'curve'} {run_argument(folder)}")


def _chosen(maps: HeadMaps, layer: int | None, head: int | None) -> dict[str, Any]:
    """Keep only the chosen heads' summaries and maps."""
    from mhsa_cli.runs.heads import maps_to_dict

    document = maps_to_dict(maps)
    weights = document["weights"]
    layers = [layer] if layer is not None else range(len(weights))
    document["weights"] = [weights[i] if head is None else [weights[i][head]] for i in layers]
    document["heads"] = [h for h in document["heads"] if h["layer"] in layers and head in (None, h["head"])]
    return document
