"""`mhsa export`: a run in the formats of other programs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import AttentionOption, JsonOption, RunArgument, RunsOption
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.custom_attention import without_maps

if TYPE_CHECKING:
    from mhsa_cli.core.export.source import Source, Trained
    from mhsa_cli.runs.run_dir import RunDir

ToOption = Annotated[
    str, typer.Option("--to", metavar="FORMAT", help="npz, csv, json, transformer-lens or tensorboard.")
]
PathOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="PATH", help="A new file or folder; left out, named after run and format."),
]

# How another program reads it; {0} is the path, quoted for the shell, {1} the same inside a Python string.
LOADS = {
    "npz": "python -c \"import numpy; print(numpy.load('{1}')['attention'].shape)\"",
    "csv": "head -3 {0}/metrics.csv",
    "json": "python -m json.tool {0}",
    "transformer-lens": (
        "pip install 'transformer_lens<4', then in Python:\n"
        "import json, safetensors.torch\n"
        "from transformer_lens import HookedTransformer, HookedTransformerConfig\n"
        "config = json.load(open('{1}/config.json'))\n"
        "weights = safetensors.torch.load_file('{1}/model.safetensors')\n"
        "config['dtype'] = weights['embed.W_E'].dtype\n"
        "model = HookedTransformer(HookedTransformerConfig.from_dict(config))\n"
        "model.load_state_dict(weights, strict=False)"
    ),
    "tensorboard": "tensorboard --logdir {0}",
}


def export(
    run: RunArgument = None,
    to: ToOption = "",
    output: PathOption = None,
    attention: AttentionOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa export`."""
    from mhsa_cli.commands.output import Paper, print_json
    from mhsa_cli.core.export import EXPORTS, SINGLE
    from mhsa_cli.jobs.load_run import open_run
    from mhsa_cli.runs.output_files import check_new, write_new
    from mhsa_cli.text import escape

    if to not in EXPORTS:
        said = f"--to {to}: no such format" if to else "--to is missing"
        raise UsageError(said, f"formats: {', '.join(EXPORTS)}")
    folder = open_run(runs, run)
    path = output or Path(folder.name + SINGLE[to] if to in SINGLE else f"{folder.name}-{to}")
    check_new(path)
    written = write_new(path, EXPORTS[to](_source(folder, attention)))
    if as_json:
        print_json({"run": str(folder.path), "to": to, "files": [str(file) for file in written]})
        return
    paper = Paper()
    for file in written:
        paper.offer(f"wrote {escape(file)}  {_size(file.stat().st_size)}")
    quoted = escape(shlex.quote(str(path))), escape(path).replace("\\", "\\\\").replace("'", "\\'")
    loads = LOADS[to].replace("['attention'].shape", ".files") if without_maps(folder) else LOADS[to]
    paper.offer(f"next: {loads.format(*quoted)}")


def _source(folder: RunDir, attention: str | None) -> Source:
    """Read a run's data; its model is loaded by the formats that need it, if it is ours or `attention` names it."""
    from mhsa_cli.config.custom_attention import is_file
    from mhsa_cli.core.export.source import Source
    from mhsa_cli.jobs.resume import run_config
    from mhsa_cli.runs.heads import maps_from_dict
    from mhsa_cli.runs.listing import HEADS

    config, info = run_config(folder), folder.read_run_json()
    closed = is_file(config.model.attention) and attention is None
    heads = folder.read_heads() if (folder.path / HEADS).exists() else None
    if heads is not None:
        maps_from_dict(heads)  # raises what is wrong with it
    return Source(
        name=folder.name,
        config=config,
        info=info,
        heads=heads,
        metrics=folder.read_metrics(),
        head_scores=folder.read_head_scores(),
        trained=lambda: _trained(folder, attention),
        checkpoint=_checkpoint(folder, info) if closed else None,
    )


def _checkpoint(folder: RunDir, info: Mapping[str, Any]) -> Mapping[str, bytes]:
    """Read the newest whole checkpoint of a run whose model is not built. Raises: RunError."""
    from mhsa_cli.core.training.checkpoint import digest, weights_of
    from mhsa_cli.jobs.load_run import check_weights

    loaded = folder.load_checkpoint()
    check_weights(folder, loaded.step, digest(weights_of(loaded.files)))
    return loaded.files


def _trained(folder: RunDir, attention: str | None) -> Trained:
    from mhsa_cli.core.export.source import Trained
    from mhsa_cli.jobs.load_run import trained

    model, task, _, step = trained(folder, attention)
    return Trained(model, task, step)


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1000:,.0f} kB"
