"""`mhsa export`: write a run in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mhsa_cli.commands.options import (
    AttentionOption,
    JsonOption,
    RunOrSweepArgument,
    RunsOption,
    StepOption,
    TaskOption,
    option,
)
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.jobs.export import check_format, export_run
from mhsa_cli.jobs.load_heads import without_maps
from mhsa_cli.jobs.load_run import open_run_or_sweep, refuse_options
from mhsa_cli.jobs.steps import find_step
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import escape, quoted

# The command that reads the export; {0} is the path, quoted for the shell, {1} the path inside a Python string.
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
    run: RunOrSweepArgument = None,
    to: Annotated[str, option("--to", "FORMAT", "npz, csv, json, transformer-lens or tensorboard [required]")] = "",
    output: Annotated[
        Path | None, option("--output, -o", "PATH", "file or folder to write [default: named after RUN]")
    ] = None,
    step: StepOption = None,
    attention: AttentionOption = None,
    task: TaskOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa export`."""
    check_format(to)
    folder = open_run_or_sweep(runs, run)
    if isinstance(folder, SweepDir):
        refuse_options(folder, "export", {"--step": step, "--attention": attention, "--task": task})
        from mhsa_cli.commands.sweep_views import show_export  # torch comes with it

        show_export(folder, to, output, as_json)
        return
    path, written = export_run(folder, to, output, OwnCode(attention, task), find_step(folder, step))
    if as_json:
        print_json({"run": str(folder.path), "to": to, "files": [str(file) for file in written]})
        return
    paper = Paper()
    paper.wrote(written)
    in_python = escape(path).replace("\\", "\\\\").replace("'", "\\'")
    command = LOADS[to].replace("['attention'].shape", ".files") if without_maps(folder) else LOADS[to]
    paper.offer(f"next: {command.format(quoted(path), in_python)}")
