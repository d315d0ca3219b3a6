"""The digest of the weights in a checkpoint, from its bytes: without torch, as run.json and heads.json record it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from mhsa_cli.errors import RunError, StorageError
from mhsa_cli.records.formats import DTYPES, WEIGHTS
from mhsa_cli.runs.checkpoints import list_checkpoints
from mhsa_cli.runs.disk import OpenFile

MOST = 1 << 28  # bytes; larger weights are compared when they are loaded


def weights_digest(run: Path, step: int) -> str | None:
    """Digest the weights of the checkpoint of a step; None if it is missing, large, or cannot be read."""
    with contextlib.suppress(RunError, StorageError, ValueError, KeyError, TypeError):
        for item in list_checkpoints(run):
            if item.step == step:
                with OpenFile(item.path / WEIGHTS, MOST) as file:
                    return digest_of(file.read())
    return None


def digest_of(file: bytes) -> str:
    """Digest every tensor's name, shape, dtype and bits, in order of name. Raises: ValueError, KeyError, TypeError."""
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    found = hashlib.sha256()
    for name in sorted(header.keys() - {"__metadata__"}):
        first, end = header[name]["data_offsets"]
        shape, dtype = tuple(header[name]["shape"]), DTYPES[header[name]["dtype"]]
        found.update(f"{name} {shape} {dtype}\n".encode())
        found.update(file[start + first : start + end])
    return found.hexdigest()
