"""What was lost is said, and odd file names are errors of usage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.shell import mhsa


def test_a_resume_without_its_metrics_says_so(tiny: Path) -> None:
    (tiny / "metrics.jsonl").unlink()
    said = mhsa("train", "--resume", "tiny", "train.epochs=9")
    assert said.code == 0 and "the metrics are gone" in said.err


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_picture_needs_a_file_name(name: str, tiny: Path) -> None:
    for command in ("inspect-heads", "curve"):
        said = mhsa(command, "tiny", "-o", name)
        assert said.code == 2 and "pictures are written as SVG" in said.err
