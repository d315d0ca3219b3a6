"""Sweeps over blocks of one's own: trained one by one, each as by itself, and imported only where they are named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.commands.custom import Marker, write
from tests.commands.shell import at_step, digests, facts, mhsa

SIZES = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "n_heads=2", "epochs=2", "steps_per_epoch=6"]
SMALL = [*SIZES, "batch_size=5", "eval_sequences=9"]
BOTH = [*SMALL, "model.attention=softmax,mine.py:Mine", "--seeds", 2, "--name", "both"]


@pytest.fixture
def marker(here: Path) -> Marker:
    """What tells whether mine.py was run."""
    return write()


@pytest.mark.parametrize("jobs", [1, 2])
def test_trials_of_ones_own_stand_beside_ours_and_are_as_trained_alone(
    jobs: int, marker: Marker, quick_workers: None
) -> None:
    said = mhsa("sweep", *BOTH, "--jobs", jobs)
    assert said.code == 0, said.err
    sweep = Path("runs/both")
    found = {name: facts(sweep / name) for name in digests(sweep)}
    assert len(found) == 4 and {info["status"] for info in found.values()} == {"finished"}
    mine = [info for info in found.values() if "attention" in info]
    assert sorted(info["seed"] for info in mine) == [42, 43]
    for info in mine:
        assert (
            mhsa("train", *SMALL, "model.attention=mine.py:Mine", f"train.seed={info['seed']}", "--name", "a").code == 0
        )
        assert facts(Path("runs/a"))["weights_sha256"] == info["weights_sha256"]
        Path("runs/a").rename(f"runs/a-{info['seed']}")


def test_a_resume_imports_a_block_only_where_it_is_named(marker: Marker) -> None:
    assert mhsa("sweep", *SMALL, "model.attention=mine.py:Mine", "--seeds", 2, "--name", "whole").code == 0
    with at_step(4, lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert mhsa("sweep", *SMALL, "model.attention=mine.py:Mine", "--seeds", 2, "--name", "again").code == 130
    marker.unlink()
    refused = mhsa("sweep", "--resume", "again")
    assert refused.code == 2 and "--attention mine.py:Mine" in refused.err and not marker.exists()
    said = mhsa("sweep", "--resume", "again", "--attention", "mine.py:Mine")
    assert said.code == 0 and marker.exists(), said.err
    assert digests(Path("runs/again")) == digests(Path("runs/whole"))
    marker.unlink()
    assert mhsa("sweep", "--resume", "again").code == 0  # nothing is missing, so nothing is imported
    assert not marker.exists()


def test_a_changed_file_is_refused_at_resume(marker: Marker) -> None:
    with at_step(4, lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert mhsa("sweep", *SMALL, "model.attention=mine.py:Mine", "--seeds", 1, "--name", "again").code == 130
    with Path("mine.py").open("a") as file:
        file.write("# better\n")
    marker.unlink()
    refused = mhsa("sweep", "--resume", "again", "--attention", "mine.py:Mine")
    assert refused.code == 4 and "mine.py" in refused.err and not marker.exists()


def test_a_block_that_cannot_be_trained_ends_a_sweep_before_it_begins(marker: Marker) -> None:
    said = mhsa("sweep", *SMALL, "model.attention=softmax,mine.py:Future", "--name", "both")
    assert said.code == 2 and "mine.py:Future" in said.err
    assert not Path("runs/both").exists()


def test_a_block_without_maps_is_swept(marker: Marker) -> None:
    said = mhsa("sweep", *SMALL, "model.attention=mine.py:Quiet", "--seeds", 1, "--name", "quiet")
    assert said.code == 0, said.err
    assert mhsa("verify", "quiet").code == 0
