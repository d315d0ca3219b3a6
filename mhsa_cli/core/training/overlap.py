"""Held-out rows of a run, and how many of them occur in its training batches: all of them on tiny tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from mhsa_cli.core.tasks.base import BLOCK, Task, TrainBatches, fixed_batch
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


def seen_in_training(batches: TrainBatches, steps: int, n: int, stream: str = "eval") -> int | None:
    """Count the n held-out rows of a stream of this seed that also occur in the first `steps` training batches.

    None where the held-out rows are other data, or there are too many rows.
    """
    return rows_seen(batches, steps, [fixed_batch(batches.task, batches.seed, stream, n).inputs])[0]


def rows_seen(batches: TrainBatches, steps: int, sets: Sequence[Tensor]) -> list[int | None]:
    """Count the rows of each set (N, T) that occur in the first `steps` training batches, by drawing those again.

    None where the held-out rows are other data, or there are too many rows. Rows of another length never occur.
    """
    if batches.task.holds_back:
        return [None] * len(sets)
    wanted = [row_keys(ids).tolist() if ids.size(1) == batches.task.seq_len else [] for ids in sets]
    missing = {key for keys in wanted for key in keys}
    drawn = 0
    for rows in batches.inputs(steps) if missing else ():
        if drawn > MAX_ROWS:
            return [None] * len(sets)
        drawn += len(rows)
        missing.difference_update(row_keys(rows).tolist())
        if not missing:
            break
    return [sum(key not in missing for key in keys) for keys in wanted]


def shared_rows(batches: TrainBatches, n: int) -> int:
    """Count the n evaluation rows that are also among the rows of the first training steps."""
    wanted = row_keys(fixed_batch(batches.task, batches.seed, "eval", n).inputs)
    return int(torch.isin(wanted, row_keys(torch.cat(list(batches.inputs(BLOCK))))).sum())
