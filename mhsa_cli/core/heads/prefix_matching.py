"""The prefix matching score of Olsson et al. 2022, for comparison with figures of other tools, and its null."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.circuits import ov_circuits
from mhsa_cli.core.heads.random_baseline import SEED, percentile, untrained
from mhsa_cli.core.heads.scores import concat_heads
from mhsa_cli.core.heads.targets import followers
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.errors import UsageError
from mhsa_cli.records.inspection import PaperScore, PaperScores

BLOCK, REPEATS, ROWS = 25, 4, 10
LENGTH = 1 + BLOCK * REPEATS


@torch.no_grad()
def prefix_matching(model: TransformerLM, task: Task, seed: int) -> PaperScores:
    """Score prefix matching and copying of every head, each with its null, the 99th percentile of untrained heads.

    Prefix matching is the mean weight, in repeats 2 to 4, on tokens after earlier copies, without subtracting a uniform
    head's. The input is ten rows of 25 random symbols repeated four times after one random start symbol. Copying is the
    OV top-1 of `circuits`. Sources: Olsson et al. 2022; ARENA.
    Raises: UsageError if max_seq_len is below 101.
    """
    if model.max_seq_len < LENGTH:
        raise UsageError(
            f"the definition of Olsson et al. 2022 needs rows of {LENGTH} tokens, max_seq_len is {model.max_seq_len}",
            f"omit --definition, or train with model.max_seq_len={LENGTH}",
        )
    matches, copies = matching(model, task, seed).tolist(), copied(model)
    nulls = [(matching(drawn, task, SEED), copied(drawn)) for drawn in untrained(model)]
    by_chance = [share for _, shares in nulls for share in shares if share is not None]
    copies_null = percentile(torch.tensor(by_chance)) if by_chance else None
    heads = [PaperScore(*head, *figures) for head, *figures in zip(model.heads, matches, copies, strict=True)]
    return PaperScores(heads, percentile(torch.cat([match for match, _ in nulls])), copies_null)


def matching(model: TransformerLM, task: Task, seed: int) -> Tensor:
    """Compute the prefix matching score of N heads, layer by layer: (N,) float64 in 0..1."""
    generator = stream_generator(seed, "olsson", 0)
    block = torch.randint(task.n_symbols, (ROWS, BLOCK), generator=generator)
    start = torch.randint(task.n_symbols, (ROWS, 1), generator=generator)
    ids = torch.cat([start, block.repeat(1, REPEATS)], 1)
    # Only matches within the repeated part: the start symbol may also occur in the block.
    target = torch.zeros(ROWS, LENGTH, LENGTH, dtype=torch.bool)
    target[:, 1:, 1:] = followers(ids[:, 1:])
    weights = concat_heads(head_weights(model, ids)).cpu()
    mass = (weights * target.unsqueeze(1)).sum(-1)[:, :, 1 + BLOCK :]  # (rows, N, queries of repeats 2 to 4)
    return mass.double().mean((0, 2))


def copied(model: TransformerLM) -> list[float | None]:
    """Compute the fraction of tokens that each head copies; None where it has no direct path or is custom."""
    if model.custom is not None:
        return [None] * len(model.heads)
    found = ov_circuits(copy.deepcopy(model).cpu().double(), [])
    return [found.get(head, (None, None))[0] for head in model.heads]
