"""A run's trained model: loaded, compared with run.json, its heads measured, and tokens generated."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.schema import Config
from mhsa_cli.core.devices import torch_version
from mhsa_cli.core.heads.capture import head_maps, read_tokens
from mhsa_cli.core.heads.causal import ablate
from mhsa_cli.core.heads.circuits import circuits
from mhsa_cli.core.heads.logit_attribution import direct_by_position, direct_notes
from mhsa_cli.core.heads.logit_lens import logit_lens
from mhsa_cli.core.heads.path_patching import activation_patch, path_error, path_patch
from mhsa_cli.core.heads.prefix_matching import prefix_matching
from mhsa_cli.core.heads.probe import Probe, build_probe
from mhsa_cli.core.heads.random_baseline import Limits
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, TrainBatches
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.load import load_trained
from mhsa_cli.errors import MhsaError, RunError, UsageError
from mhsa_cli.jobs.custom_attention import load_block
from mhsa_cli.jobs.initial import model_of_step_0
from mhsa_cli.jobs.kept_scores import keep_own_scores
from mhsa_cli.jobs.load_run import check_weights
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_task import load_task
from mhsa_cli.jobs.run_config import check_unedited, own_text, run_config
from mhsa_cli.jobs.untrained_limits import untrained_limits
from mhsa_cli.records.circuits import Circuits
from mhsa_cli.records.heads import Ablation, ActivationEffect, HeadMaps, Path, PathEffect
from mhsa_cli.records.inspection import DirectLogits, LogitLens, PaperScores
from mhsa_cli.runs.heads import maps_from_dict, maps_to_dict
from mhsa_cli.runs.listing import HEADS, WEIGHTS
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape, plural


class TrainedRun(NamedTuple):
    """A trained model in eval mode, and the step of its checkpoint."""

    model: TransformerLM
    task: Task
    config: Config
    step: int


def load_trained_run(folder: RunDir, own: OwnCode, step: int | None = None) -> TrainedRun:
    """Load the checkpoint of a step, or the newest whole one.

    Without a checkpoint of step 0 its weights are drawn again from the seed, or read from the copy of their file.
    Raises: RunError if none is whole or it does not fit the config; UsageError if code that it needs is not named.
    """
    config = own_text(run_config(folder), folder)
    custom = load_block(config, folder.read_run_json(), own.attention, who=folder.name, allow_changed=None)
    untrained = step == 0 and all(item.step for item in folder.checkpoints())
    found, files, notes = folder.load_checkpoint(None if untrained else step, for_training=False)
    for note in notes:
        tell(f"note: {note}")
    task = load_task(config, folder.read_run_json(), own.task, who=folder.name, allow_changed=None)
    model = load_trained(config, task, files, lambda settings: check_unedited(config, settings, folder), custom)
    check_weights(folder, found, weights_sha256(model))
    if untrained:
        model, found = model_of_step_0(folder, config, task, custom), 0
        drawn = config.train.init is None
        if drawn and (trained_with := folder.read_run_json().get("torch")) not in (None, torch_version()):
            tell(f"note: initial weights of torch {torch_version()}; the run had torch {escape(str(trained_with))}")
    return TrainedRun(model, task, config, found)


def measure_model(
    config: Config,
    task: Task,
    model: TransformerLM,
    step: int,
    limits: Callable[[], Limits] | None = None,
    more: bool = False,
) -> HeadMaps:
    """Measure the heads of a trained model. `limits` returns those of untrained heads, by default `untrained_limits`.

    `more` adds what takes long.
    Custom attention that returns no weights has no maps; the note says so.
    """
    custom = model.custom
    if custom is not None and not custom.findings.has_weights:
        return HeadMaps(step, task.name, [], [], [], f"{custom.attention.name}: {custom.findings.reason}")
    seed, training = config.train.seed, (TrainBatches.of(task, config.train), step)
    limits = limits or (lambda: untrained_limits(config, task, model))
    report = head_report(model, task, seed, limits, training, more)
    return replace(head_maps(model, task, seed, step), report=report, origin=config.origin)


def measure_run(
    folder: RunDir,
    own: OwnCode,
    tokens: str | None = None,
    step: int | None = None,
    more: bool = False,
) -> HeadMaps:
    """Measure a checkpoint, by default the newest: maps and scores on the task's rows, or maps on given tokens.

    `more` adds what takes long. Raises: UsageError if its custom attention returns no weights.
    """
    run = load_trained_run(folder, own, step)
    if tokens is not None:
        return maps_on_tokens(run, tokens)
    _check_weights_known(run)
    return measure_model(run.config, run.task, run.model, run.step, more=more)


def maps_on_tokens(run: TrainedRun, tokens: str, option: str = "--tokens") -> HeadMaps:
    """Compute the maps on given tokens. Raises: UsageError, also if custom attention returns no weights."""
    _check_weights_known(run)
    ids = read_tokens(tokens, run.task, run.config.max_seq_len, option)
    if run.model.source and len(ids) != run.model.max_seq_len:
        found = f"{option}: found {plural(len(ids), 'token')}, an encoder-decoder has a map of whole rows"
        raise UsageError(found, f"{run.model.max_seq_len} tokens: source, separator and answer but its last token")
    return replace(head_maps(run.model, run.task, run.config.train.seed, run.step, ids), origin=run.config.origin)


def _check_weights_known(run: TrainedRun) -> None:
    custom = run.model.custom
    if custom is not None and not custom.findings.has_weights:
        raise UsageError(f"{custom.attention.name} has no maps of heads: {custom.findings.reason}", FOR_MAPS)


def measure_more(folder: RunDir, own: OwnCode) -> HeadMaps:
    """Measure what takes long too, and write it to the run folder. Raises: BusyError, StorageError."""
    with RunDir.open(folder.path.parent, folder.path, write=True) as run:
        model, task, config, step = load_trained_run(run, own)
        maps = measure_model(config, task, model, step, more=True)
        if maps.report is None:
            raise UsageError(f"{run.name} has no maps of heads: {maps.note}", FOR_MAPS)
        digest = weights_sha256(model)
        with contextlib.suppress(MhsaError):  # a damaged file is written anew
            if (run.path / HEADS).exists() and (before := run.read_heads()).get(WEIGHTS) == digest:
                maps = keep_own_scores(maps, maps_from_dict(before))
        status = run.read_run_json()["status"]
        run.write_heads({"run": run.name, WEIGHTS: digest, **maps_to_dict(maps)})
        run.update(status=status)
    return maps


def score_prefix_matching(run: TrainedRun, step: int) -> PaperScores:
    """Score every head as Olsson et al. 2022 do. Raises: RunError if the checkpoint is not of `step`."""
    if run.step != step:
        message = f"the newest whole checkpoint is of step {run.step}, the stored scores are of step {step}"
        raise RunError(message, "remove --definition")
    return prefix_matching(run.model, run.task, run.config.train.seed)


def compute_circuits(run: TrainedRun) -> Circuits:
    """Compute the circuits of the heads' weights."""
    return replace(circuits(run.model, run.task, run.config.train.seed, run.step), origin=run.config.origin)


def measure_ablation(run: TrainedRun, heads: Sequence[Head]) -> tuple[list[Ablation], str]:
    """Measure loss and accuracy with these heads ablated; also names the rows. Raises: UsageError, RunError."""
    probe = _probe(run, "--ablate")
    found = ablate(run.model, probe.batch, heads)
    if not all(math.isfinite(one.loss) for one in found):
        raise RunError("the loss with these heads ablated is not finite: weights are NaN, infinite or huge")
    return found, probe.inputs


def measure_paths(run: TrainedRun, paths: Sequence[Path]) -> list[PathEffect]:
    """Patch paths of a model. Raises: UsageError for one that it does not have, RunError."""
    for path in paths:
        error = path_error(run.model, path)
        if error is not None:
            raise UsageError(f"--patch: {error.message}", error.hint, error.code)
    found = path_patch(run.model, run.task, run.config.train.seed, paths)
    _check_finite([effect.delta_nats for effect in found], "--patch")
    return found


def measure_activations(run: TrainedRun, heads: Sequence[Head]) -> list[ActivationEffect]:
    """Patch the whole output of heads. Raises: UsageError, RunError."""
    found = activation_patch(run.model, run.task, run.config.train.seed, heads)
    _check_finite([effect.delta_nats for effect in found], "--patch")
    return found


def measure_lens(run: TrainedRun) -> LogitLens:
    """Read the stream after every layer as if it were the last. Raises: UsageError, RunError."""
    probe, task = _probe(run, "--lens"), run.task
    steps = logit_lens(run.model, probe.batch)
    _check_finite([step.loss for step in steps], "--lens")
    return LogitLens(steps, probe.inputs, task.chance_loss, task.chance_accuracy)


def measure_direct(run: TrainedRun) -> DirectLogits:
    """Compute every head's direct logits by query position. Raises: UsageError, RunError."""
    probe = _probe(run, "--direct")
    counts, heads = direct_by_position(run.model, probe.batch)
    _check_finite([figure for figures in heads.values() for figure in figures if figure is not None], "--direct")
    return DirectLogits(counts, heads, probe.inputs, direct_notes(run.model, probe.batch))


def _probe(run: TrainedRun, option: str) -> Probe:
    """Build the rows that heads are measured on. Raises: UsageError if they are too long."""
    probe = build_probe(run.model, run.task, run.config.train.seed)
    if probe is None:
        raise UsageError(f"{option}: rows of {run.task.seq_len} tokens are too long to measure heads on")
    return probe


def _check_finite(figures: Sequence[float], option: str) -> None:
    """Refuse figures of damaged weights. Raises: RunError."""
    if not all(map(math.isfinite, figures)):
        raise RunError(f"{option}: a figure is not finite: weights are NaN, infinite or huge")


@dataclass(frozen=True)
class Generation:
    """A prompt's ids and an iterator of generated tokens; `beyond`: longer than the rows of the training.

    `origin` is the file of a model that was made elsewhere.
    """

    step: int
    task: Task
    prompt: list[int]
    tokens: Iterator[int]
    beyond: bool
    origin: str | None


def continue_prompt(
    folder: RunDir,
    prompt: str,
    max_new_tokens: int | None,
    *,
    temperature: float,
    top_k: int | None,
    seed: int,
    cache: bool,
    own: OwnCode,
    step: int | None = None,
) -> Generation:
    """Generate `max_new_tokens`, or as many as fit, from a prompt. Raises: UsageError."""
    model, task, config, at = load_trained_run(folder, own, step)
    with contextlib.suppress(UnicodeError):
        prompt = os.fsencode(prompt).decode()  # as it was typed, in any locale
    ids = read_tokens(prompt, task, model.max_seq_len, "--prompt")
    count = model.max_seq_len - len(ids) + 1 if max_new_tokens is None else max_new_tokens
    use_cache = cache and model.custom is None
    tokens = generate(model, ids, count, temperature=temperature, top_k=top_k, seed=seed, use_cache=use_cache)
    return Generation(at, task, ids.tolist(), tokens, len(ids) + count - 1 > task.seq_len, config.origin)
