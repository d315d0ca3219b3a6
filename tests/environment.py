"""The environment that tests start commands in: nothing in it changes what a command prints, whoever runs the tests."""

from __future__ import annotations

import os

# What says of a screen, a log or a notebook how wide, coloured or lively it is, and where runs lie.
FOREIGN = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "CI", "GITHUB_ACTIONS", "JPY_PARENT_PID",
           "COLAB_RELEASE_TAG", "MHSA_RUNS", "PYTHONIOENCODING")  # fmt: skip


def plain() -> dict[str, str]:
    """Give this process's environment without them."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}
