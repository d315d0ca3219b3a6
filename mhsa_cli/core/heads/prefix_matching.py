"""The prefix matching score of Olsson et al. 2022, for comparison with figures of other tools."""

from __future__ import annotations

import torch

from mhsa_cli.core.heads.capture import head_weights
from mhsa_cli.core.heads.scores import concat_heads
from mhsa_cli.core.heads.targets import followers
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.errors import UsageError

BLOCK, REPEATS, ROWS = 25, 4, 10
LENGTH = 1 + BLOCK * REPEATS


def prefix_matching(model: TransformerLM, task: Task, seed: int) -> list[float]:
    """Compute each head's prefix matching score: the mean weight, in repeats 2 to 4, on tokens after earlier copies.

    The input is ten rows of 25 random symbols repeated four times after one random start symbol. Returns one figure in
    0..1 per head, layer by layer, without subtracting a uniform head's. Source: Olsson et al. 2022.
    Raises: UsageError if max_seq_len is below 101.
    """
    if model.max_seq_len < LENGTH:
        raise UsageError(
            f"the definition of Olsson et al. 2022 needs rows of {LENGTH} tokens, max_seq_len is {model.max_seq_len}",
            f"omit --definition, or train with model.max_seq_len={LENGTH}",
        )
    generator = stream_generator(seed, "olsson", 0)
    block = torch.randint(task.n_symbols, (ROWS, BLOCK), generator=generator)
    start = torch.randint(task.n_symbols, (ROWS, 1), generator=generator)
    ids = torch.cat([start, block.repeat(1, REPEATS)], 1)
    # Only matches within the repeated part: the start symbol may also occur in the block.
    target = torch.zeros(ROWS, LENGTH, LENGTH, dtype=torch.bool)
    target[:, 1:, 1:] = followers(ids[:, 1:])
    weights = concat_heads(head_weights(model, ids)).cpu()
    mass = (weights * target.unsqueeze(1)).sum(-1)[:, :, 1 + BLOCK :]  # (rows, N, queries of repeats 2 to 4)
    return mass.double().mean((0, 2)).tolist()
