"""Which rows a run is evaluated on, and how many of them it was also trained on: on a tiny task all, to be said."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from mhsa_cli.core.tasks.base import BLOCK, Task, fixed_batch, stream_generator
from mhsa_cli.core.training.checkpoint import tensor_bytes

MAX_ROWS = 1_000_000  # training rows that are drawn again to count; beyond it nothing is claimed


def row_keys(inputs: Tensor) -> Tensor:
    """Give each row of ids (N, T) one 64-bit number; different rows share one with a chance of about 2^-64."""
    generator = torch.Generator().manual_seed(1)
    factors = torch.randint(-(2**62), 2**62, (inputs.size(1),), generator=generator)
    return ((inputs + 1) * (2 * factors + 1)).sum(1)


def rows_sha256(task: Task, seed: int, n: int) -> str:
    """Digest the n evaluation rows: equal digests mean the same ids and the same answers, in the same order."""
    rows, found = fixed_batch(task, seed, "eval", n), hashlib.sha256()
    for ids in (rows.inputs, rows.targets):
        found.update(f"{tuple(ids.shape)} int64\n".encode() + tensor_bytes(ids.to(torch.int64)))
    return found.hexdigest()


def seen_in_training(task: Task, seed: int, steps: int, batch_size: int, n: int) -> int | None:
    """Count the n evaluation rows that `steps` training batches contain, by drawing those batches again.

    Returns None where that is not counted: the evaluation part is other data, or there are too many rows.
    """
    if task.n_rows is None:
        return None
    wanted = row_keys(fixed_batch(task, seed, "eval", n).inputs).tolist()
    missing = set(wanted)
    for index in range(-(-steps // BLOCK)):
        if index * BLOCK * batch_size > MAX_ROWS:
            return None
        rows = task.sample(BLOCK * batch_size, stream_generator(seed, "train", index)).inputs
        missing.difference_update(row_keys(rows[: (steps - index * BLOCK) * batch_size]).tolist())
        if not missing:
            break
    return sum(key not in missing for key in wanted)
