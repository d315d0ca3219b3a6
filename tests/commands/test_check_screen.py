"""The report of one block on a terminal of 24 rows: verdict and next command stay in sight; a pipe and -v show all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands.shell import mhsa
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_report_fits_the_terminal(here: Path, columns: int) -> None:
    shutil.copy(ROOT / "examples" / "my_attention.py", here / "mine.py")
    command = ["check", "mine.py:MyAttention"]
    with Terminal(["-m", "mhsa_cli", *command], columns, 24) as terminal:
        assert terminal.wait() == 7
        shown = terminal.screen.text
    assert "wrong: " in shown and "after a change: mhsa check mine.py:MyAttention" in " ".join(shown.split())
    assert "-v lists them" in " ".join(shown.split())
    piped = mhsa(*command)
    with Terminal(["-m", "mhsa_cli", *command, "-v"], columns, 24) as terminal:
        assert terminal.wait() == 7
        assert terminal.raw.count(b"\n") >= 40 and b"-v lists" not in terminal.raw
    assert len(piped.out.splitlines()) > 40 and "-v lists" not in piped.out
