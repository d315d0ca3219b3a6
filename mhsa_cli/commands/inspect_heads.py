"""`mhsa inspect-heads`: every head's attention map, what was measured of it, and what happens without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mhsa_cli.commands.inspect_tables import More, show_tables
from mhsa_cli.commands.options import AttentionOption, HeadsOption, JsonOption, OutputOption, RunArgument, RunsOption
from mhsa_cli.commands.output import Paper, picture_path, picture_surface, print_json, write_picture
from mhsa_cli.commands.run_summary import heads_picture, show_heads
from mhsa_cli.config.custom_attention import only_if_ours
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.load_heads import check_maps, chosen_heads, heading, measured_maps
from mhsa_cli.jobs.load_run import open_run
from mhsa_cli.jobs.run_config import run_config
from mhsa_cli.records import HeadMaps
from mhsa_cli.runs.heads import maps_to_dict
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head

LayerOption = Annotated[str | None, typer.Option("--layer", metavar="L1", help="One layer only; 1 is L1.")]
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
    head: HeadsOption = None,
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
    """Run `mhsa inspect-heads`."""
    file, folder = picture_path(output), open_run(runs, run)
    asked = [
        name
        for name, given in (("--scores", scores), ("--circuits", circuits), ("--ablate", ablate is not None))
        if given
    ]
    _check(asked, tokens, definition)
    if circuits:
        only_if_ours(run_config(folder).model.attention, "--circuits", "reads the weights of our attention")
    if ablate is not None:
        only_if_ours(run_config(folder).model.attention, "--ablate", "replaces what heads of our attention say")
    maps = measured_maps(folder, attention) if tokens is None else _on_tokens(folder, tokens, attention)
    chosen = chosen_heads(maps, layer, head)
    if not asked:
        _show_maps(folder, maps, chosen, file, as_json)
        return

    more = More(folder, maps, chosen, attention)
    parts = [more.scores(definition)] if scores else []
    parts += [more.circuits()] if circuits else []
    parts += [more.ablation(ablate)] if ablate is not None else []
    show_tables(folder, maps, parts, file, as_json)


def _on_tokens(folder: RunDir, tokens: str, attention: str | None) -> HeadMaps:
    check_maps(folder)
    from mhsa_cli.jobs.measure_heads import maps_on_tokens  # torch comes with it

    return maps_on_tokens(folder, tokens, attention)


def _check(asked: list[str], tokens: str | None, definition: str | None) -> None:
    """Refuse options that have nothing to say to each other."""
    if asked and tokens is not None:
        raise UsageError(f"{asked[0]} is measured on the task's rows, --tokens shows maps", "give one of the two")
    if definition is not None and "--scores" not in asked:
        raise UsageError("--definition goes with --scores")
    if definition not in (None, "olsson2022"):
        raise UsageError(f"--definition: found `{definition}`, wanted `olsson2022`")


def _show_maps(folder: RunDir, maps: HeadMaps, chosen: Sequence[Head], file: Path | None, as_json: bool) -> None:
    if file is not None:
        surface = picture_surface(file)
        picture = heads_picture(maps, surface, chosen)
        write_picture(file, picture, f"attention maps of {folder.name}")
    if as_json:
        print_json({"run": str(folder.path), **_document(maps, chosen)})
        return
    paper = Paper()
    paper.say(f"{heading(folder, maps.step)}\n")
    show_heads(paper, maps, chosen)
    paper.offer(f"\nnext: mhsa {'explain' if maps.report is not None else 'curve'} {run_argument(folder.path)}")


def _document(maps: HeadMaps, chosen: Sequence[Head]) -> dict[str, Any]:
    """Write the maps and summaries of the chosen heads alone, the maps layer by layer."""
    document = maps_to_dict(maps)
    layers = [
        [weights for head, weights in enumerate(heads) if (layer, head) in chosen]
        for layer, heads in enumerate(document["weights"])
    ]
    document["weights"] = [heads for heads in layers if heads]
    document["heads"] = [head for head in document["heads"] if (head["layer"], head["head"]) in chosen]
    return document
