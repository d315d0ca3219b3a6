"""`mhsa generate`: let a trained model go on from a prompt."""

from __future__ import annotations

import math
import sys
from itertools import chain
from typing import Annotated, Any

from mhsa_cli.commands.options import AttentionOption, JsonOption, RunArgument, RunsOption, flag, option
from mhsa_cli.commands.output import print_json
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.load_run import open_run
from mhsa_cli.jobs.messages import tell, writable

PromptOption = Annotated[str, option("--prompt, -p", '"3 5 9"', "Ids or symbols to start from (for text: characters).")]
StepsOption = Annotated[int | None, option("--steps", "N", "Tokens to say; left out, as many as fit into max_seq_len.")]
TemperatureOption = Annotated[
    float, option("--temperature", "X", "0 says the likeliest token; 1 draws as the model believes.")
]
TopKOption = Annotated[int | None, option("--top-k", "K", "Draw from the K likeliest tokens only.")]
SeedOption = Annotated[int, option("--seed", "N", "Seed of the draws.")]
CacheOption = Annotated[bool, flag("--cache/--no-cache", "Keep keys and values, or compute all again for every token.")]


def generate(
    run: RunArgument = None,
    prompt: PromptOption = "",
    steps: StepsOption = None,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = None,
    seed: SeedOption = 0,
    cache: CacheOption = True,
    attention: AttentionOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa generate`."""
    _check(prompt, steps, temperature, top_k, seed)
    folder = open_run(runs, run)
    from mhsa_cli.jobs.trained_run import continue_prompt  # torch comes with it

    said = continue_prompt(
        folder, prompt, steps, temperature=temperature, top_k=top_k, seed=seed, cache=cache, attention=attention
    )
    task = said.task
    if said.beyond:
        tell(f"note: it was trained on {task.seq_len} tokens a row; what it says beyond them was never trained")
    if as_json:
        found = list(said.tokens)
        document = {"run": folder.name, "prompt": said.prompt, "tokens": found, "symbols": task.symbols(found)}
        text = {"text": "".join(map(task.write, found))} if not task.space else {}
        print_json({**document, **text})
        return
    _speak(task, said.prompt, said.tokens)


def _speak(task: Any, prompt: list[int], said: Any) -> None:
    """Print the prompt, then every token as soon as it is known."""
    pieces = (task.space + task.write(token) for token in said)
    for text in chain([task.space.join(task.write(i) for i in prompt)], pieces, ["\n"]):
        print(writable(text, sys.stdout), end="", flush=True)


def _check(prompt: str, steps: int | None, temperature: float, top_k: int | None, seed: int) -> None:
    if not prompt:
        raise UsageError("--prompt is empty", 'give tokens to start from: --prompt "3 5 9"')
    if steps is not None and steps < 0:
        raise UsageError(f"--steps {steps}: wanted 0 or more")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UsageError(f"--temperature {temperature}: wanted a finite number, 0 or more")
    if top_k is not None and top_k < 1:
        raise UsageError(f"--top-k {top_k}: wanted 1 or more")
    if not 0 <= seed < 2**63:
        raise UsageError(f"--seed {seed}: wanted 0 to 2^63 - 1")
