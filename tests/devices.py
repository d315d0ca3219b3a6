"""Tests of what a device computes: the same bodies on the CPU, and on a GPU where there is one (pytest -m cuda)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch

# Must stand before CUDA starts: without it the bits of a matrix product may differ from run to run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

GPU = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def with_models(models: Iterable[str], on_cpu: Sequence[str] = ("copy", "llama")) -> Callable[..., Any]:
    """Run a test with device="cpu" for some models, as other tests train the rest there, and on a GPU for all."""
    there = [pytest.param("cuda", model, marks=GPU) for model in models]
    return pytest.mark.parametrize(("device", "model"), [*(("cpu", model) for model in on_cpu), *there])


def on_each_device(test: Callable[..., Any]) -> Any:
    """Run a test with device="cpu" and, marked `cuda`, with device="cuda"."""
    return pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])(test)
