"""The induction score of Olsson et al. 2022, for comparison with other tools' figures."""

from __future__ import annotations

import torch

from mhsa_cli.core.heads.hooks import head_weights
from mhsa_cli.core.heads.scores import heads_together
from mhsa_cli.core.heads.targets import followers
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.errors import UsageError

BLOCK, REPEATS, ROWS = 25, 4, 10
LENGTH = 1 + BLOCK * REPEATS


def prefix_matching(model: TransformerLM, task: Task, seed: int) -> list[float]:
    """Measure each head's prefix matching score: the mean weight, from repeats 2 to 4, on what followed earlier ones.

    Ten rows of 25 random symbols said four times, behind one start symbol (a random one: these tasks have none).
    Returns a figure in 0..1 by head, layer by layer; a uniform head's is not taken off. Source: Olsson et al. 2022.
    Raises: UsageError if the model takes no rows of 101 tokens.
    """
    if model.max_seq_len < LENGTH:
        raise UsageError(
            f"the definition of Olsson et al. 2022 needs rows of {LENGTH} tokens, this model takes {model.max_seq_len}",
            f"leave out --definition, or train with model.max_seq_len={LENGTH}",
        )
    generator = stream_generator(seed, "olsson", 0)
    block = torch.randint(task.n_symbols, (ROWS, BLOCK), generator=generator)
    start = torch.randint(task.n_symbols, (ROWS, 1), generator=generator)
    ids = torch.cat([start, block.repeat(1, REPEATS)], 1)
    # Matches within the repeated part only: the start symbol may equal one of the block's.
    target = torch.zeros(ROWS, LENGTH, LENGTH, dtype=torch.bool)
    target[:, 1:, 1:] = followers(ids[:, 1:])
    weights = heads_together(head_weights(model, ids)).cpu()
    mass = (weights * target.unsqueeze(1)).sum(-1)[:, :, 1 + BLOCK :]  # (rows, N, queries of repeats 2 to 4)
    return [float(one) for one in mass.double().mean((0, 2))]
