"""A run's trained model: loaded and compared with its run.json, its heads measured, and let go on from a prompt."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.config.schema import Config
from mhsa_cli.core.heads.capture import head_maps, read_tokens
from mhsa_cli.core.heads.causal import ablate
from mhsa_cli.core.heads.circuits import circuits
from mhsa_cli.core.heads.prefix_matching import prefix_matching
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.load import load_trained
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.custom_attention import load_block
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.run_config import check_unedited, own_text, run_config
from mhsa_cli.records.heads import Ablation, Circuits, HeadMaps
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head


class TrainedRun(NamedTuple):
    """A trained model in eval mode, and the step it was saved at."""

    model: TransformerLM
    task: Task
    config: Config
    step: int


def load_trained_run(folder: RunDir, attention: str | None) -> TrainedRun:
    """Load the newest whole checkpoint.

    `attention` names the block of a run that was trained with somebody's own.
    Raises: RunError if none is whole, it is of another training, or the config was edited since; UsageError if that
    block is not named.
    """
    config = own_text(run_config(folder), folder)
    custom = load_block(config, folder.read_run_json(), attention, who=folder.name, allow=None)
    step, files, notes = folder.load_checkpoint(for_training=False)
    for note in notes:
        tell(f"note: {note}")
    task = build_task(config.task)
    model = load_trained(config, task, files, lambda settings: check_unedited(config, settings, folder), custom)
    check_weights(folder, step, weights_sha256(model))
    return TrainedRun(model, task, config, step)


def measure_model(
    config: Config, task: Task, model: TransformerLM, step: int, limits: Mapping[str, float] | None = None
) -> HeadMaps:
    """Look at the heads of a trained model. `limits` are those of random heads, which runs of one shape share.

    Of a block that does not show its weights there are no maps, and the note says so.
    """
    custom = model.custom
    if custom is not None and not custom.findings.has_weights:
        return HeadMaps(step, task.name, [], [], [], f"{custom.attention.name}: {custom.findings.reason}")
    seed = config.train.seed
    return replace(head_maps(model, task, seed, step), report=head_report(model, task, seed, limits))


def measure_run(folder: RunDir, attention: str | None = None, tokens: str | None = None) -> HeadMaps:
    """Capture the maps of the newest checkpoint: on the task's rows, with all that is measured; or on given tokens.

    Raises: UsageError if its block shows no maps.
    """
    model, task, config, step = load_trained_run(folder, attention)
    custom = model.custom
    if custom is not None and not custom.findings.has_weights:
        raise UsageError(f"{custom.attention.name} has no maps of heads: {custom.findings.reason}", FOR_MAPS)
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


@dataclass(frozen=True)
class Generation:
    """A prompt's ids, and the tokens that follow as they come; `beyond` tells that rows so long were never trained."""

    task: Task
    prompt: list[int]
    tokens: Iterator[int]
    beyond: bool


def continue_prompt(
    folder: RunDir,
    prompt: str,
    max_new_tokens: int | None,
    *,
    temperature: float,
    top_k: int | None,
    seed: int,
    cache: bool,
    attention: str | None,
) -> Generation:
    """Let the newest checkpoint go on from a prompt, for `max_new_tokens` or as many as fit. Raises: UsageError."""
    model, task, _, _ = load_trained_run(folder, attention)
    with contextlib.suppress(UnicodeError):
        prompt = os.fsencode(prompt).decode()  # as it was typed, also in a locale that cannot say so
    ids = read_tokens(prompt, task, model.max_seq_len, "--prompt")
    count = model.max_seq_len - len(ids) + 1 if max_new_tokens is None else max_new_tokens
    use_cache = cache and model.custom is None
    said = generate(model, ids, count, temperature=temperature, top_k=top_k, seed=seed, use_cache=use_cache)
    return Generation(task, ids.tolist(), said, len(ids) + count - 1 > task.seq_len)
