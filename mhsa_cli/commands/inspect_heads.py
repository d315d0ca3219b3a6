"""`mhsa inspect-heads`: every head's attention map, from the stored sample or on tokens of one's own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, OutputOption, RunArgument, RunsOption
from mhsa_cli.errors import UsageError

LayerOption = Annotated[int | None, typer.Option("--layer", metavar="N", help="One layer only, from 0.")]
HeadOption = Annotated[int | None, typer.Option("--head", metavar="N", help="One head only, from 0, large.")]
TokensOption = Annotated[
    str | None, typer.Option("--tokens", metavar='"3 5 9"', help="Look at these ids (for text: these characters).")
]


def inspect_heads(
    run: RunArgument = None,
    layer: LayerOption = None,
    head: HeadOption = None,
    tokens: TokensOption = None,
    output: OutputOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where every head looks: weights before dropout, one colour scale for all heads.

    Example: mhsa inspect-heads copy-h4 --head 0 --tokens "3 5 9 63 3 5"
    """
    from mhsa_cli.commands.opening import open_run
    from mhsa_cli.commands.printing import (
        Paper,
        picture_path,
        picture_surface,
        print_json,
        run_argument,
        write_picture,
    )
    from mhsa_cli.commands.summary import show_heads
    from mhsa_cli.renderers.heatmap import head_maps
    from mhsa_cli.runs.heads import maps_from_dict, maps_to_dict

    file, folder = picture_path(output), open_run(runs, run)
    stored = _stored(folder) if tokens is None else None
    maps = _look(folder, tokens) if stored is None else maps_from_dict(stored)
    chosen = _chosen(maps_to_dict(maps), layer, head)
    if file is not None:
        surface = picture_surface(file)
        picture = head_maps(maps, width=surface.width, surface=surface, layer=layer, head=head)
        write_picture(file, picture, f"attention maps of {folder.name}")
    if as_json:
        print_json({"run": str(folder.path), **chosen})
        return
    paper = Paper()
    paper.say(f"{folder.name}, step {maps.step}\n")
    show_heads(paper, maps, layer, head)
    paper.say(f"\nnext: mhsa curve {run_argument(folder)}")


def _stored(folder: Any) -> dict[str, Any] | None:
    """Read heads.json; None where training was cut off before it was written, or went on after it."""
    from mhsa_cli.runs.listing import HEADS

    if not (folder.path / HEADS).exists():
        return None
    content: dict[str, Any] = folder.read_heads()
    step, saved = content.get("step"), folder.checkpoints()
    went_on = isinstance(step, int) and saved and saved[-1].step != step
    return None if went_on else content


def _look(folder: Any, tokens: str | None) -> Any:
    """Load the newest checkpoint and capture its heads on the given tokens, or on the task's first probe row."""
    from mhsa_cli.commands.opening import trained
    from mhsa_cli.core.heads.capture import head_maps, read_tokens

    model, task, config, step = trained(folder)
    ids = None if tokens is None else read_tokens(tokens, task, config.max_seq_len)
    return head_maps(model, task, config.train.seed, step, ids)


def _chosen(document: dict[str, Any], layer: int | None, head: int | None) -> dict[str, Any]:
    """Refuse a layer or head that is not there, and keep only the chosen ones' summaries and maps."""
    weights = document["weights"]
    if layer is not None and not 0 <= layer < len(weights):
        raise UsageError(f"there is no layer {layer}", f"layers: 0 to {len(weights) - 1}")
    if head is not None and not 0 <= head < max(map(len, weights), default=0):
        raise UsageError(f"there is no head {head}", f"heads: 0 to {max(map(len, weights)) - 1}")
    layers = [layer] if layer is not None else range(len(weights))
    document["weights"] = [weights[i] if head is None else [weights[i][head]] for i in layers]
    document["heads"] = [h for h in document["heads"] if h["layer"] in layers and head in (None, h["head"])]
    return document
