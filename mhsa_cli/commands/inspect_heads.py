"""`mhsa inspect-heads`: attention maps, scores, circuits, ablations and patches of heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from mhsa_cli.commands.inspect_tables import HeadTable, HeadTables
from mhsa_cli.commands.options import (
    AttentionOption,
    HeadsOption,
    JsonOption,
    RunOrSweepArgument,
    RunsOption,
    ScoresOption,
    StepOption,
    TaskOption,
    flag,
    option,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.commands.pictures import (
    AsOption,
    OutputOption,
    PictureFile,
    ThemeOption,
    WidthOption,
    only_option,
    picture_file,
    write_picture,
)
from mhsa_cli.commands.run_summary import show_heads
from mhsa_cli.config.custom_attention import refuse_block
from mhsa_cli.config.encoder_decoder import refuse_encoder_decoder
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.load_heads import check_maps, chosen_heads, heading, measured_maps, tell_other_weights
from mhsa_cli.jobs.load_run import open_run_or_sweep, refuse_options
from mhsa_cli.jobs.run_config import run_config
from mhsa_cli.jobs.steps import find_step, step_option
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.renderers.figures.sheet_options import HEADS_PARTS, Page
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.heads import heads_picture
from mhsa_cli.runs.heads import maps_to_dict
from mhsa_cli.runs.listing import run_argument
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import Head

if TYPE_CHECKING:
    from mhsa_cli.renderers.figures.sheet import PaperFigure

# What these options do with the parts of a block, which custom attention does not have.
BUILT_IN = {
    "--circuits": "reads the weights",
    "--ablate": "replaces the patterns",
    "--patch": "replaces the queries, keys, values and outputs",
    "--direct": "reads the outputs of heads",
}
ONE_STREAM = ("--circuits", "--patch", "--direct")  # not defined where layers update different parts of a row


def inspect_heads(
    run: RunOrSweepArgument = None,
    layer: Annotated[str | None, option("--layer", "LAYER", "only the heads of this layer: L1 or 1")] = None,
    head: HeadsOption = None,
    tokens: Annotated[
        str | None, option("--tokens", "TOKENS", 'maps on these ids, such as "3 5 9"; for text: characters')
    ] = None,
    scores: Annotated[bool, flag("--scores", "every score of every head, in place of the maps")] = False,
    score: ScoresOption = None,
    circuits: Annotated[bool, flag("--circuits", "what the weights compute, in place of the maps")] = False,
    ablate: Annotated[
        str | None, option("--ablate", "HEADS", "loss with these heads ablated, such as L0.H3,L1.H0")
    ] = None,
    patch: Annotated[
        str | None,
        option(
            "--patch", "PATHS", "loss with paths patched, such as L0.H1:L1.H2.k (or .q, .v; L0.H1:logits), or heads"
        ),
    ] = None,
    lens: Annotated[bool, flag("--lens", "loss of the stream after every layer (logit lens)")] = False,
    direct: Annotated[bool, flag("--direct", "direct logits of every head by query position")] = False,
    definition: Annotated[
        str | None, option("--definition", "olsson2022", "with --scores: add the scores of Olsson et al. 2022")
    ] = None,
    step: StepOption = None,
    attention: AttentionOption = None,
    task: TaskOption = None,
    output: OutputOption = None,
    look: AsOption = None,
    width: WidthOption = None,
    theme: ThemeOption = None,
    only: Annotated[str | None, only_option(*HEADS_PARTS)] = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa inspect-heads`."""
    file = picture_file(output, look, width, theme, only)
    folder = open_run_or_sweep(runs, run)
    given = {"--scores": scores, "--score": score is not None, "--circuits": circuits, "--ablate": ablate is not None}
    given |= {"--patch": patch is not None, "--lens": lens, "--direct": direct}
    if isinstance(folder, SweepDir):
        others = {"--layer": layer, "--heads": head, "--tokens": tokens, "--definition": definition, "--step": step}
        refuse_options(folder, "inspect-heads", {**given, **others, "--attention": attention, "--task": task})
        from mhsa_cli.commands.sweep_views import show_trials  # torch comes with it

        show_trials(folder, file, as_json)
        return
    asked = [name for name, is_given in given.items() if is_given]
    _check(asked, tokens, definition)
    _check_figure(file, asked)
    for name in asked:
        if name in BUILT_IN:
            refuse_block(run_config(folder).model.attention, name, f"{BUILT_IN[name]} of built-in attention")
        if name in ONE_STREAM or (name == "--scores" and definition is not None):
            refuse_encoder_decoder(
                run_config(folder).model.encoder_layers > 0, name if definition is None else "--definition"
            )
    at = find_step(folder, step)
    own = OwnCode(attention, task, score or ())
    maps = measured_maps(folder, own, at) if tokens is None else _on_tokens(folder, tokens, own, at)
    chosen = chosen_heads(maps, layer, head)
    if not asked:
        if tokens is None:
            tell_other_weights(folder, maps)
        _show_maps(folder, maps, chosen, at, file, as_json)
        return
    tables = HeadTables(folder, maps, chosen, own, at)
    wanted = [tables.scores(definition)] if scores else []
    wanted += [tables.own_scores()] if score else []
    wanted += [tables.circuits()] if circuits else []
    wanted += [tables.ablation(ablate)] if ablate is not None else []
    wanted += tables.patches(patch) if patch is not None else []
    wanted += [tables.lens()] if lens else []
    wanted += [tables.direct()] if direct else []
    _show_tables(folder, maps, wanted, at, file, as_json)


def _on_tokens(folder: RunDir, tokens: str, own: OwnCode, at: int | None) -> HeadMaps:
    check_maps(folder)
    from mhsa_cli.jobs.trained_run import measure_run  # imports torch

    return measure_run(folder, own, tokens, at)


def _check(asked: list[str], tokens: str | None, definition: str | None) -> None:
    """Refuse options that exclude each other. Raises: UsageError."""
    if asked and tokens is not None:
        message = f"{asked[0]} and --tokens exclude each other: {asked[0]} is measured on the rows of the task"
        raise UsageError(message, "keep one of them")
    if definition is not None and "--scores" not in asked:
        raise UsageError("--definition needs --scores", "add --scores")
    if definition not in (None, "olsson2022"):
        raise unwanted("--definition", definition, "olsson2022")


def _check_figure(file: PictureFile | None, asked: list[str]) -> None:
    """Refuse what no figure shows. Raises: UsageError."""
    page = None if file is None else file.page
    if page is None or not asked:
        return
    if "--circuits" in asked:
        raise UsageError("--circuits has no figure", "add --as terminal, or name a file .txt or .html")
    if page.only is not None:
        raise UsageError(f"--only chooses of the maps' figure, {asked[0]} has one part", "leave --only out")


def _show_maps(
    folder: RunDir, maps: HeadMaps, chosen: Sequence[Head], at: int | None, file: PictureFile | None, as_json: bool
) -> None:
    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.maps import heads_figure  # matplotlib comes with it

        return heads_figure(maps, page, chosen)

    title = f"attention maps of {_titled(folder, at)}"
    write_picture(file, lambda surface: heads_picture(maps, surface, chosen), figure, title)
    if as_json:
        print_json({"run": str(folder.path), **_document(maps, chosen)})
        return
    paper = Paper()
    paper.say(f"{heading(folder, maps.step)}\n")
    show_heads(paper, maps, chosen)
    more = f"explain {run_argument(folder.path)}{step_option(at)}"
    paper.next(f"mhsa {more if maps.report is not None else f'curve {run_argument(folder.path)}'}")


def _titled(folder: RunDir, at: int | None) -> str:
    """Name a run in the title of a picture, with the step of `--step`."""
    return folder.name if at is None else heading(folder, at)


def _show_tables(
    folder: RunDir, maps: HeadMaps, tables: Sequence[HeadTable], at: int | None, file: PictureFile | None, as_json: bool
) -> None:
    step = max(table.step for table in tables)

    def picture(surface: Surface) -> Lines:
        return Lines([line for table in tables for line in table.draw(surface)])

    def figure(page: Page) -> PaperFigure:
        from mhsa_cli.renderers.figures.sheet import compose  # matplotlib comes with it

        return compose(page, {name: draw for table in tables for name, draw in table.parts().items()})

    write_picture(file, picture, figure, f"heads of {_titled(folder, at)}")
    if as_json:
        document: dict[str, Any] = {"run": str(folder.path), "step": step, "task": maps.task}
        for table in tables:
            document |= table.document
        print_json(document)
        return
    paper = Paper()
    paper.say(f"{heading(folder, step)}\n")
    for table in tables:
        if table.step != step:  # the newest checkpoint is damaged, the stored measurements are not
            paper.say(f"at step {table.step}, the newest whole checkpoint:")
        if table.heading:
            paper.say(table.heading)
        paper.draw(table.draw(paper.surface))
        paper.say()
    paper.offer(f"next: mhsa explain {run_argument(folder.path)}{step_option(at)}")


def _document(maps: HeadMaps, chosen: Sequence[Head]) -> dict[str, Any]:
    """Write the maps, by layer, and the summaries of the chosen heads."""
    document = maps_to_dict(maps)
    layers = [
        [weights for head, weights in enumerate(heads) if (layer, head) in chosen]
        for layer, heads in enumerate(document["weights"])
    ]
    document["weights"] = [heads for heads in layers if heads]
    document["heads"] = [head for head in document["heads"] if (head["layer"], head["head"]) in chosen]
    return document
