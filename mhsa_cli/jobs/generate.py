"""What a trained model says after a prompt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from mhsa_cli.core.heads.capture import read_tokens
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.tasks import Task
from mhsa_cli.jobs.load_model import load_trained_run
from mhsa_cli.runs.run_dir import RunDir


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
    steps: int | None,
    *,
    temperature: float,
    top_k: int | None,
    seed: int,
    cache: bool,
    attention: str | None,
) -> Generation:
    """Let the newest checkpoint go on from a prompt, for `steps` tokens or as many as fit. Raises: UsageError."""
    model, task, _, _ = load_trained_run(folder, attention)
    with contextlib.suppress(UnicodeError):
        prompt = os.fsencode(prompt).decode()  # as it was typed, also in a locale that cannot say so
    ids = read_tokens(prompt, task, model.max_seq_len, "--prompt")
    count = model.max_seq_len - len(ids) + 1 if steps is None else steps
    use_cache = cache and model.custom is None
    said = generate(model, ids, count, temperature=temperature, top_k=top_k, seed=seed, use_cache=use_cache)
    return Generation(task, ids.tolist(), said, len(ids) + count - 1 > task.seq_len)
