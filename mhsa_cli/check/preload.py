"""Imported by the server from which grading processes are forked: everything is loaded, and runs on one thread."""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError, OSError):  # each process then tells that torch cannot be imported
    import torch

    import mhsa_cli.check.confirm

    torch.set_num_threads(1)

__all__ = ["mhsa_cli"]
