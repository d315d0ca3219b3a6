"""The names of the package: few, documented, and nothing is loaded before it is asked for."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import mhsa_cli as mhsa

SCREEN = 24  # rows of a terminal
IMPORTED = """
import sys
import mhsa_cli as mhsa
assert [name for name in sys.modules if name.startswith("mhsa_cli.")] == []
names = [name for name in dir(mhsa) if not name.startswith("__")]
names.remove("nn")
assert len(names) == 12 and all(getattr(mhsa, name) is not None for name in names)
run = mhsa.load("tiny")
assert run.path.name == run.name == "tiny" and run.config.model.n_heads == 3 and run.info["status"] == "finished"
assert len(run.metrics) and len(run.claims) and len(run.heads) and run._repr_html_() and str(run)
assert "torch" not in sys.modules
assert mhsa.nn.MultiHeadSelfAttention(4, 2)(mhsa.nn.Linear(4, 6).weight[None]).shape == (1, 6, 4)
"""


def test_nothing_is_loaded_before_it_is_asked_for(place: Path) -> None:
    """torch is loaded to train and to measure, not to look at what a run has already."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_help_says_it_all_on_one_screen() -> None:
    """Below the text Python lists the modules of the package."""
    written = pydoc.plain(pydoc.render_doc(mhsa))
    first, listed = written.split("PACKAGE CONTENTS")
    assert len(first.splitlines()) <= SCREEN + 2 and len(listed.splitlines()) <= SCREEN
    assert mhsa.__doc__ is not None
    for name in dir(mhsa):
        assert name.startswith("__") or name in ("Run", "Sweep", "MhsaWarning") or f"mhsa.{name}" in mhsa.__doc__
    assert max(map(len, first.splitlines())) <= 80


def test_what_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        mhsa.nothing  # noqa: B018


def test_tasks_name_their_settings() -> None:
    assert list(mhsa.tasks)[:2] == ["repeat", "copy"]
    setting = mhsa.tasks["copy"].settings["vocab_size"]
    assert (setting.default, setting.required) == (64, False) and setting.description
    assert mhsa.tasks["text"].settings["path"].required
    assert all("name" not in task.settings and task.description for task in mhsa.tasks.values())
