"""One thread for every test, or TEST_THREADS of them; a GPU only for tests marked for it: the others are a CPU's.

No test asks how long something took: a busy machine is slow.
"""

import gc
import os
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

# Each run draws the same examples, so that no commit is refused by luck; `--hypothesis-profile random` draws others.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("untimed", settings.get_profile("random"), derandomize=True)
settings.load_profile("untimed")
# Where a test wants two threads after all: one that waits sleeps, and does not spin. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# As in the program itself: collecting thousands of tests makes objects that all stay. It takes a third less time.
gc.set_threshold(100_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    """Load torch where tests run; a process that only hands them out to workers (`-n 2`) does without."""
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        return
    import torch

    torch.set_num_threads(int(os.environ.get("TEST_THREADS", "1")))


def pytest_collection_finish() -> None:
    """Leave what has been collected alone from now on."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hide a GPU from a test that is not marked `cuda`, from its fixtures, and from processes that it starts."""
    import torch

    if item.get_closest_marker("cuda") or not torch.cuda.is_available():
        return (yield)
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: False),
        mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}),
    ):
        return (yield)
