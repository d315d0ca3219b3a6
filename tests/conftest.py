"""One thread for every test: the bits of a matrix product may depend on how many share it."""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Load torch where tests run; a process that only hands them out to workers (`-n 2`) does without."""
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        return
    import torch

    torch.set_num_threads(1)
