"""mhsa explore: a run as it opens it, on a terminal of its own, and what it says where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mhsa_cli.commands.explore import explored
from mhsa_cli.runs.run_dir import RunDir
from tests.commands.shell import mhsa
from tests.terminal import Terminal


def test_it_opens_a_run_with_its_maps_over_training(tiny: Path) -> None:
    found = explored(RunDir.open(tiny.parent, "tiny"))
    steps = [maps.step for maps, _ in found.frames]
    assert steps == sorted(set(steps)) and steps[0] == 0 and steps[-1] == 10
    assert found.frames[-1][0] is found.run.maps and found.run.maps.report is not None
    losses = dict(found.run.series[0].points)
    assert [loss for maps, loss in found.frames if maps.step in losses] == [losses[s] for s in steps if s in losses]


def test_keys_reach_it_and_leave_the_terminal_as_it_was(tiny: Path) -> None:
    with Terminal(["-m", "mhsa_cli", "explore", "tiny"], 60, 20, MHSA_RUNS=str(tiny.parent)) as terminal:
        while b"L0.H0" not in terminal.raw:
            take(terminal)
        terminal.type("q")
        while terminal.child.poll() is None:
            take(terminal)
        assert terminal.child.returncode == 0 and terminal.is_as_before()


def take(terminal: Terminal) -> None:
    """Read what is written, without drawing it: it paints the whole screen."""
    terminal.screen.write = lambda text: None  # type: ignore[method-assign]
    terminal.read()


def test_it_needs_a_terminal_and_its_library(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = mhsa("explore", "tiny")
    assert (said.code, said.out) == (2, "") and "mhsa report" in said.err
    monkeypatch.setitem(sys.modules, "mhsa_cli.renderers.explorer", None)  # an earlier test may have loaded it
    monkeypatch.setattr("mhsa_cli.commands.explore.is_tty", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    said = mhsa("explore", "tiny", terminal=True)
    assert (said.code, said.out) == (2, "") and "mhsa-cli[tui]" in said.err
