"""The tricks of tests/commands/test_check_forged.py work: without the other process that confirms, all are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.jobs.grade.judge import Judge
from tests.commands.test_check_forged import PLAIN, TRICKS, graded


def test_every_trick_fools_the_process_that_it_runs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Judge, "refusal", lambda *_: None)
    verdicts = {name: item["verdict"] for name, item in graded().items()}
    assert verdicts == {**dict.fromkeys([*TRICKS, *PLAIN], "right"), "wrong": "wrong"}
