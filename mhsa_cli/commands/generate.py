"""`mhsa generate`: generate tokens from a prompt with a trained model."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any

from mhsa_cli.commands.options import (
    AttentionOption,
    JsonOption,
    RunArgument,
    RunsOption,
    StepOption,
    TaskOption,
    flag,
    option,
)
from mhsa_cli.commands.output import print_json
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.errors import UsageError, unwanted
from mhsa_cli.jobs.load_heads import heading
from mhsa_cli.jobs.load_run import open_run
from mhsa_cli.jobs.messages import tell, writable
from mhsa_cli.jobs.steps import find_step


def generate(
    run: RunArgument = None,
    prompt: Annotated[
        str,
        option("--prompt, -p", "TOKENS", 'ids or symbols (text: characters), such as "3 5 9" [required]'),
    ] = "",
    max_new_tokens: Annotated[
        int | None, option("--max-new-tokens", "N", "tokens to generate [default: up to max_seq_len]", min=0)
    ] = None,
    temperature: Annotated[float, option("--temperature", "X", "sampling temperature; 0 is greedy")] = 0.0,
    top_k: Annotated[
        int | None, option("--top-k", "K", "sample from the K most likely only [default: all]", min=1)
    ] = None,
    seed: Annotated[int, option("--seed", "N", "seed of the sampling", min=0, max=2**63 - 1)] = 0,
    cache: Annotated[bool, flag("--cache/--no-cache", "cache keys and values")] = True,
    step: StepOption = None,
    attention: AttentionOption = None,
    task: TaskOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa generate`."""
    if not prompt:
        raise UsageError("--prompt: found no tokens, wanted at least one", 'for example: --prompt "3 5 9"')
    if not 0 <= temperature < math.inf:  # typer's own range lets NaN and infinity pass
        raise unwanted("--temperature", temperature, "a finite number, 0 or more")
    folder = open_run(runs, run)
    at = find_step(folder, step)
    from mhsa_cli.jobs.trained_run import continue_prompt  # imports torch

    result = continue_prompt(
        folder,
        prompt,
        max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        cache=cache,
        own=OwnCode(attention, task),
        step=at,
    )
    made = result.task
    if at is not None:
        tell(f"note: {heading(folder, at)}")
    if result.beyond and result.origin is not None:
        tell(f"note: longer than the rows of its task, {made.seq_len} tokens")
    elif result.beyond:
        tell(f"note: trained on rows of {made.seq_len} tokens; positions beyond them were never trained")
    if as_json:
        tokens = list(result.tokens)
        document = {
            "run": folder.name,
            "step": result.step,
            "prompt": result.prompt,
            "tokens": tokens,
            "symbols": made.symbols(tokens),
        }
        text = {"text": "".join(map(made.write, tokens))} if not made.space else {}
        print_json({**document, **text})
        return
    _stream(made, result.prompt, result.tokens)


def _stream(task: Any, prompt: Iterable[int], tokens: Iterable[int]) -> None:
    """Print the prompt, then each token as soon as it is known."""
    pieces = (task.space + task.write(token) for token in tokens)
    for piece in chain([task.space.join(map(task.write, prompt))], pieces, ["\n"]):
        print(writable(piece, sys.stdout), end="", flush=True)
