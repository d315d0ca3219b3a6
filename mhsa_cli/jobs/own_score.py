"""Scores of the user's own: their files run here, where the command line names them, and their heads are measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.config.encoder_decoder import refuse_encoder_decoder
from mhsa_cli.config.own_file import OwnCode, file_digest, split
from mhsa_cli.config.own_score import SCORE, check_names, short_score
from mhsa_cli.config.schema import Config
from mhsa_cli.core.heads.own_scores import Null, OwnScore, own_figures
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.kept_scores import KEY, TARGET, VALUE, kept_scores, name_again
from mhsa_cli.jobs.own_source import OwnSource, local_file
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.jobs.trained_run import load_trained_run
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.runs.run_dir import RunDir


def load_scores(names: Sequence[str]) -> list[OwnScore]:
    """Run the files of scores, and see which form each has. Raises: UsageError."""
    from mhsa_cli.check.source.load import load_whole

    check_names(names)
    return [OwnScore(name, load_whole(name)) for name in names]


def new_scores(names: Sequence[str], config: Config, task: Task, model: TransformerLM | None) -> list[OwnScore]:
    """Load the scores of a new training and try each once. `model` has custom attention. Raises: UsageError."""
    if names:
        refuse_encoder_decoder(config.model.encoder_layers > 0, "--score")
    scores = load_scores(names)
    custom = None if model is None else model.custom
    if scores and custom is not None and not custom.findings.has_weights:
        message = f"--score: {custom.attention.name} gives no weights to score: {custom.findings.reason}"
        raise UsageError(message, FOR_MAPS, SCORE.code)
    for score in scores:
        score.check(task, config.model.n_heads, config.model.causal)
    return scores


def resumed_scores(info: Mapping[str, Any], given: Sequence[str], who: str, allow_changed: bool) -> list[OwnScore]:
    """Load the scores that a run keeps, which --score names again. Raises: UsageError, RunError."""
    return load_scores(name_again(kept_scores(info), given, who, allow_changed))


def score_facts(scores: Sequence[OwnScore], kept: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Describe scores for run.json; empty without any. `kept` are the names and digests of a sweep's plan."""
    if not scores:
        return {}
    kept = {score.name: file_digest(score.name) for score in scores} if kept is None else kept
    parts = {short_score(name): (split(name)[0], found) for name, found in kept.items()}
    return {
        KEY: [
            {
                "file": parts[score.short][0],
                "name": score.short,
                "form": TARGET if score.is_target else VALUE,
                "sha256": parts[score.short][1],
            }
            for score in scores
        ]
    }


def with_own_scores(
    maps: HeadMaps,
    config: Config,
    task: Task,
    model: TransformerLM,
    scores: Sequence[OwnScore],
    nulls: Mapping[str, Null] | None = None,
) -> HeadMaps:
    """Measure scores and add them to the heads of measured maps. `nulls` are shared by runs of one shape."""
    if maps.report is None or not scores:
        return maps
    found = own_figures(model, task, config.train.seed, scores, nulls)
    heads = [replace(head, own_scores={**head.own_scores, **found.get(head.address, {})}) for head in maps.report.heads]
    return replace(maps, report=replace(maps.report, heads=heads))


def measure_scores(
    folder: RunDir, own: OwnCode, maps: HeadMaps, names: Sequence[str], step: int | None = None
) -> HeadMaps:
    """Measure scores of a trained run now. Raises: UsageError, RunError if its checkpoint is not the maps' own."""
    run = load_trained_run(folder, own, step)
    if run.step != maps.step:
        message = f"the newest whole checkpoint is of step {run.step}, the stored scores are of step {maps.step}"
        raise RunError(message, "remove --score")
    scores = new_scores(names, run.config, run.task, run.model)
    found = with_own_scores(maps, run.config, run.task, run.model, scores)
    if found.report is None or not all(head.own_scores for head in found.report.heads):
        raise UsageError(f"--score: rows of {run.task.seq_len} tokens are too long to measure heads on")
    return found


def score_digests(names: Sequence[str], configs: Sequence[Config]) -> dict[str, str]:
    """Map the scores of a new sweep to the sha256 of their files; each is tried on every shape. Raises: UsageError."""
    scores, tried = load_scores(names), set()
    for config in configs if scores else ():
        refuse_encoder_decoder(config.model.encoder_layers > 0, "--score")
        if (shape := (config.task, config.model.n_heads, config.model.causal)) not in tried:
            tried.add(shape)
            task = make_task(config)
            for score in scores:
                score.check(task, config.model.n_heads, config.model.causal)
    return {name: file_digest(name) for name in names}


@contextlib.contextmanager
def scores_of_chunk(sent: Sequence[OwnSource]) -> Iterator[list[OwnScore]]:
    """Load the scores of a sweep's trials from the files as the sweep sends them to any machine."""
    with contextlib.ExitStack() as stack:
        yield load_scores([stack.enter_context(local_file(one)) for one in sent])
