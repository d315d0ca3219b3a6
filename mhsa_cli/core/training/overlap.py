"""Held-out rows of a run, and how many of them occur in its training batches: all of them on tiny tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from mhsa_cli.core.tasks.base import BLOCK, Task, TrainBatches, fixed_batch, train_rows
from mhsa_cli.core.training.checkpoint import tensor_bytes

MAX_ROWS = 1_000_000  # training rows drawn again to count; the count is None beyond


def row_keys(inputs: Tensor) -> Tensor:
    """Hash each row of ids (N, T) to 64 bits."""
    generator = torch.Generator().manual_seed(1)
    factors = torch.randint(-(2**62), 2**62, (inputs.size(1),), generator=generator)
    return ((inputs + 1) * (2 * factors + 1)).sum(1)


def rows_sha256(task: Task, seed: int, n: int) -> str:
    """Digest ids and targets of the n evaluation rows in order."""
    rows, found = fixed_batch(task, seed, "eval", n), hashlib.sha256()
    for ids in (rows.inputs, rows.targets):
        found.update(f"{tuple(ids.shape)} int64\n".encode() + tensor_bytes(ids.to(torch.int64)))
    return found.hexdigest()


def seen_in_training(task: Task, seed: int, steps: int, batch_size: int, n: int, stream: str = "eval") -> int | None:
    """Count the n held-out rows of a stream that also occur in `steps` training batches.

    None where the held-out rows are other data, or there are too many rows.
    """
    return rows_seen(task, seed, steps, batch_size, [fixed_batch(task, seed, stream, n).inputs])[0]


def rows_seen(task: Task, seed: int, steps: int, batch_size: int, sets: Sequence[Tensor]) -> list[int | None]:
    """Count the rows of each set (N, T) that occur in `steps` training batches, by drawing those again.

    None where the held-out rows are other data, or there are too many rows. Rows of another length never occur.
    """
    if task.holds_back:
        return [None] * len(sets)
    wanted = [row_keys(ids).tolist() if ids.size(1) == task.seq_len else [] for ids in sets]
    missing = {key for keys in wanted for key in keys}
    for index in range(-(-steps // BLOCK) if missing else 0):
        if index * BLOCK * batch_size > MAX_ROWS:
            return [None] * len(sets)
        rows = train_rows(task, seed, index, batch_size).inputs
        missing.difference_update(row_keys(rows[: (steps - index * BLOCK) * batch_size]).tolist())
        if not missing:
            break
    return [sum(key not in missing for key in keys) for keys in wanted]


def shared_rows(task: Task, seed: int, batch_size: int, n: int) -> int:
    """Count the n evaluation rows that are also among the rows of the first training steps."""
    trained = TrainBatches(task, seed, batch_size)
    first = torch.cat([trained[step].inputs for step in range(1, BLOCK + 1)])
    wanted = row_keys(fixed_batch(task, seed, "eval", n).inputs)
    return int(torch.isin(wanted, row_keys(first)).sum())
