"""Attention of public packages, each through a file of at most five lines: right, or the kind named.

It needs transformers and x-transformers, which few users have: `.ci/run` runs it in an environment of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("transformers")
pytest.importorskip("x_transformers")

from mhsa_cli.check.grade import grade  # noqa: E402
from mhsa_cli.check.source.load import load  # noqa: E402
from mhsa_cli.records.check import GradeOptions  # noqa: E402
from tests.check.grading import described  # noqa: E402

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("*.py") if path.name != Path(__file__).name)
EDGES = {"weights_after_dropout", "mask_missing"}  # several return the weights after dropout, or are encoders


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_package_is_right(path: Path) -> None:
    result = grade(load(f"{path}:block"), GradeOptions())
    assert result.verdict == "right" and {fault.id for fault in result.faults} <= EDGES, described(result)


def test_each_file_has_at_most_five_lines() -> None:
    assert len(FILES) >= 9
    assert all(len(list(filter(None, path.read_text().splitlines()))) <= 5 for path in FILES)
