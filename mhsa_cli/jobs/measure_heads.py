"""What is measured of a trained run's heads: their maps, scores and circuits, and what is lost without some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.config.load import Config
from mhsa_cli.core.heads.capture import head_maps, read_tokens
from mhsa_cli.core.heads.causal import ablate
from mhsa_cli.core.heads.circuits import circuits
from mhsa_cli.core.heads.prefix_matching import prefix_matching
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.load_model import TrainedRun, load_trained_run
from mhsa_cli.records import Ablation, Circuits, HeadMaps
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head


def measure_model(
    config: Config, task: Task, model: TransformerLM, step: int, limits: Mapping[str, float] | None = None
) -> HeadMaps:
    """Look at the heads of a trained model. `limits` are those of random heads, which runs of one shape share.

    Of a block that does not show its weights there are no maps, and the note says so.
    """
    custom = model.custom
    if custom is not None and not custom.found.shows:
        return HeadMaps(step, task.name, [], [], [], f"{custom.attention.target}: {custom.found.why}")
    seed = config.train.seed
    return replace(head_maps(model, task, seed, step), report=head_report(model, task, seed, limits))


def measure_run(folder: RunDir, attention: str | None = None, tokens: str | None = None) -> HeadMaps:
    """Capture the maps of the newest checkpoint: on the task's rows, with all that is measured; or on given tokens.

    Raises: UsageError if its block shows no maps.
    """
    model, task, config, step = load_trained_run(folder, attention)
    custom = model.custom
    if custom is not None and not custom.found.shows:
        raise UsageError(f"{custom.attention.target} has no maps of heads: {custom.found.why}", FOR_MAPS)
    if tokens is None:
        return measure_model(config, task, model, step)
    return head_maps(model, task, config.train.seed, step, read_tokens(tokens, task, config.max_seq_len))


def score_prefix_matching(run: TrainedRun, step: int) -> list[float]:
    """Score every head as Olsson et al. 2022 do. Raises: RunError if the checkpoint is not of `step`."""
    if run.step != step:
        said = f"the newest whole checkpoint is of step {run.step}, these scores are of step {step}"
        raise RunError(said, "leave out --definition")
    return prefix_matching(run.model, run.task, run.config.train.seed)


def compute_circuits(run: TrainedRun) -> Circuits:
    """Find what the heads' weights compute."""
    return circuits(run.model, run.task, run.config.train.seed, run.step)


def measure_ablation(run: TrainedRun, heads: Sequence[Head]) -> tuple[list[Ablation], str]:
    """Measure loss and accuracy without these heads; also says on which rows. Raises: UsageError, RunError."""
    probe = build_probe(run.model, run.task, run.config.train.seed)
    if probe is None:
        raise UsageError(f"--ablate: rows of {run.task.seq_len} tokens are too long to measure heads on")
    found = ablate(run.model, probe.batch, heads)
    if not all(math.isfinite(one.loss) for one in found):
        raise RunError("the loss without these heads is not finite: the weights hold NaN, infinity or huge numbers")
    return found, probe.inputs
