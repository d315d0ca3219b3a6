"""A tiny run that is trained once for all tests of the API."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

import mhsa_cli as mhsa

TINY = {"task.vocab_size": 9, "seq_len": 6, "d_model": 12, "n_layers": 2, "d_mlp": 7, "residual": True}
QUICK = {"epochs": 2, "steps_per_epoch": 9, "batch_size": 5, "eval_sequences": 11}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run called `tiny`, in `runs`; nothing waits for the disk."""
    folder = tmp_path_factory.mktemp("api")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.delenv("MHSA_RUNS", raising=False)
        mhsa.train("copy", TINY, n_heads=3, name="tiny", **QUICK)
    return folder


@pytest.fixture
def tiny(place: Path) -> mhsa.Run:
    return mhsa.load("tiny", runs=place / "runs")
