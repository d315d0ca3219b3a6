"""Weights exchanged under stored statements about heads: every command that shows them says so."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.commands.shell import mhsa


def test_weights_of_another_run_are_reported(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        trained = mhsa("train", "epochs=1", "steps_per_epoch=5", f"seed={seed}", "--runs", tmp_path, "--name", name)
        assert trained.code == 0, trained.err
    saved = Path("checkpoints") / "step-00000005"
    assert not mhsa("explain", tmp_path / "one").err
    shutil.rmtree(tmp_path / "one" / saved)
    shutil.copytree(tmp_path / "two" / saved, tmp_path / "one" / saved)
    for command in ("explain", "inspect-heads"):
        shown = mhsa(command, tmp_path / "one")
        assert shown.code == 0 and shown.err.startswith("warning: ")
