"""The walks whole: every setting by itself at every value, and what looks back on every kind of stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import test_walk_commands, test_walk_settings
from tests.commands.test_walk_commands import ALL, LOOKING, NORMAL, SOME, look, prepared
from tests.commands.test_walk_settings import WALKED, Case, walk
from tests.commands.walk import WalkedCommand

__all__ = ["prepared"]

stand_among_runs, stand_alone = test_walk_commands.place, test_walk_settings.place


@pytest.mark.parametrize("case", WALKED, ids=str)
def test_each_setting(case: Case, stand_alone: Path) -> None:
    walk(case.task, case.chosen)


@pytest.mark.parametrize("command", LOOKING, ids=str)
def test_looking_back(command: WalkedCommand, stand_among_runs: Path) -> None:
    look(command, NORMAL, [stream for stream in ALL if stream not in SOME])
