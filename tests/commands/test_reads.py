"""What a command reads of a run: every file at most once, and none that it does not use."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.runs import disk
from tests.commands.shell import mhsa

LOOKING = {
    "explain": ["explain", "tiny"],
    "maps": ["inspect-heads", "tiny"],
    "scores": ["inspect-heads", "tiny", "--scores", "--json"],
    "tokens": ["inspect-heads", "tiny", "--tokens", "1 2 0"],
    "tables": ["inspect-heads", "tiny", "--circuits", "--ablate", "L0", "--json"],
    "curve": ["curve", "tiny"],
    "curve as JSON, and a picture": ["curve", "tiny", "--json", "-o", "curve.svg"],
    "timeline": ["timeline", "tiny"],
    "compare": ["compare", "tiny", "other"],
    "generate": ["generate", "tiny", "--prompt", "1 2"],
    "npz": ["export", "tiny", "--to", "npz"],
    "json": ["export", "tiny", "--to", "json"],
    "one run": ["runs", "tiny"],
}


def reads(*command: str) -> Counter[str]:
    """Count how often each file of a run is opened for reading."""
    found: Counter[str] = Counter()
    real = disk.open_regular

    def opening(path: Path, flags: int) -> int:
        found[str(path)] += Path("runs") in path.parents
        return real(path, flags)

    with mock.patch.object(disk, "open_regular", opening):
        said = mhsa(*command)
    assert said.code == 0, said.err
    return +found


@pytest.mark.parametrize("what", LOOKING)
def test_what_looks_at_a_run_reads_each_file_once_and_no_optimizer(what: str, tiny: Path) -> None:
    shutil.copytree(tiny, "runs/other")
    found = reads(*LOOKING[what])
    assert found["runs/tiny/run.json"] == 1
    assert max(found.values()) == 1, {path: count for path, count in found.items() if count > 1}
    assert not any("optimizer" in path for path in found)
