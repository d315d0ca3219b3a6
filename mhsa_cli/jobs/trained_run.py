"""A run's trained model: loaded, compared with run.json, its heads measured, and tokens generated."""

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
    """A trained model in eval mode, and the step of its checkpoint."""

    model: TransformerLM
    task: Task
    config: Config
    step: int


def load_trained_run(folder: RunDir, attention: str | None) -> TrainedRun:
    """Load the newest whole checkpoint. `attention` names the run's custom attention.

    Raises: RunError if none is whole or it does not fit the config; UsageError if the custom attention is not named.
    """
    config = own_text(run_config(folder), folder)
    custom = load_block(config, folder.read_run_json(), attention, who=folder.name, allow_changed=None)
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
    """Measure the heads of a trained model. `limits` are those of untrained heads, shared by runs of one shape.

    Custom attention that returns no weights has no maps; the note says so.
    """
    custom = model.custom
    if custom is not None and not custom.findings.has_weights:
        return HeadMaps(step, task.name, [], [], [], f"{custom.attention.name}: {custom.findings.reason}")
    seed = config.train.seed
    return replace(head_maps(model, task, seed, step), report=head_report(model, task, seed, limits))


def measure_run(folder: RunDir, attention: str | None = None, tokens: str | None = None) -> HeadMaps:
    """Measure the newest checkpoint: maps and scores on the task's rows, or maps on given tokens.

    Raises: UsageError if its custom attention returns no weights.
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
        message = f"the newest whole checkpoint is of step {run.step}, the stored scores are of step {step}"
        raise RunError(message, "remove --definition")
    return prefix_matching(run.model, run.task, run.config.train.seed)


def compute_circuits(run: TrainedRun) -> Circuits:
    """Compute the circuits of the heads' weights."""
    return circuits(run.model, run.task, run.config.train.seed, run.step)


def measure_ablation(run: TrainedRun, heads: Sequence[Head]) -> tuple[list[Ablation], str]:
    """Measure loss and accuracy with these heads ablated; also names the rows. Raises: UsageError, RunError."""
    probe = build_probe(run.model, run.task, run.config.train.seed)
    if probe is None:
        raise UsageError(f"--ablate: rows of {run.task.seq_len} tokens are too long to measure heads on")
    found = ablate(run.model, probe.batch, heads)
    if not all(math.isfinite(one.loss) for one in found):
        raise RunError("the loss with these heads ablated is not finite: weights are NaN, infinite or huge")
    return found, probe.inputs


@dataclass(frozen=True)
class Generation:
    """A prompt's ids and an iterator of generated tokens; `beyond`: longer than the rows of the training."""

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
    """Generate `max_new_tokens`, or as many as fit, from a prompt. Raises: UsageError."""
    model, task, _, _ = load_trained_run(folder, attention)
    with contextlib.suppress(UnicodeError):
        prompt = os.fsencode(prompt).decode()  # as it was typed, in any locale
    ids = read_tokens(prompt, task, model.max_seq_len, "--prompt")
    count = model.max_seq_len - len(ids) + 1 if max_new_tokens is None else max_new_tokens
    use_cache = cache and model.custom is None
    tokens = generate(model, ids, count, temperature=temperature, top_k=top_k, seed=seed, use_cache=use_cache)
    return Generation(task, ids.tolist(), tokens, len(ids) + count - 1 > task.seq_len)
