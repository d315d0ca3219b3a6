"""A run on the user's own text holds all it needs: the file may go, the folder may move."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands.shell import facts, mhsa, tree

# Line ends and byte order marks that reading twice would change; 17 different characters or so.
TEXT = ("\ufeff\ufeffthe cat sat\r\r\non [red] mats\n" * 9).encode()
TRAIN = ("train", "task.name=text", "task.path=own.txt", "task.seq_len=6", "n_heads=2", "steps_per_epoch=3")


@pytest.fixture
def run(here: Path) -> Path:
    (here / "own.txt").write_bytes(TEXT)
    said = mhsa(*TRAIN, "epochs=2", "--name", "prose")
    assert said.code == 0, said.err
    return here / "runs" / "prose"


def test_the_folder_needs_nothing_outside_itself(run: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (run / "text.txt").read_bytes() == TEXT
    assert mhsa(*TRAIN, "epochs=4", "--name", "longer").code == 0
    (here / "own.txt").unlink()
    moved = here / "far" / "away"
    moved.parent.mkdir()
    run.rename(moved)
    monkeypatch.chdir(moved.parent)
    shown = mhsa("inspect-heads", "away", "--tokens", "the m", "--json").json
    assert shown["tokens"] == ["t", "h", "e", "␣", "m"] and len(shown["weights"][0]) == 2
    said = mhsa("train", "--resume", "away", "epochs=4")
    assert said.code == 0 and "next: mhsa explain away" in said.out
    assert facts(moved)["weights_sha256"] == facts(here / "runs" / "longer")["weights_sha256"]
    assert "path: own.txt" in (moved / "config.yaml").read_text()  # what was asked for, not where the copy lay


def test_another_text_is_not_trained_on_as_if_it_were_the_same(run: Path) -> None:
    (run / "text.txt").write_bytes(TEXT.replace(b"cat", b"act"))
    before = tree(run)
    for command in (["train", "--resume", "prose", "epochs=3"], ["inspect-heads", "prose", "--tokens", "sat"]):
        said = mhsa(*command)
        assert said.code == 4 and "text.txt" in said.err
    assert {**tree(run), ".lock": None} == {**before, ".lock": None}
    assert mhsa("inspect-heads", "prose").code == 0  # the stored maps are those of the run


@pytest.mark.parametrize("data", [b"", b"short", b"\0\1\2" * 99, b"caf\xe9 " * 99])
def test_a_file_that_is_no_text_is_refused_before_there_is_a_run(data: bytes, here: Path) -> None:
    (here / "own.txt").write_bytes(data)
    said = mhsa(*TRAIN)
    assert said.code == 2 and "own.txt" in said.err
    assert not (here / "runs").exists()


def test_a_sweep_keeps_to_the_text_that_it_was_planned_with(here: Path) -> None:
    Path("own.txt").write_text("the cat sat on the mat. " * 9)
    sizes = ["d_model=4", "n_heads=2", "batch_size=3", "eval_sequences=5", "epochs=1", "steps_per_epoch=2", "seq_len=5"]
    grid = ["task.name=text", "task.path=own.txt", *sizes, "--seeds", 2, "--name", "s"]
    assert mhsa("sweep", *grid).code == 0
    first, second = (Path("runs/s", f"seed={seed}") for seed in (42, 43))
    wanted = facts(second)["weights_sha256"]
    shutil.rmtree(second)
    Path("own.txt").write_text("another text, which is as long as it needs to be. " * 9)
    assert mhsa("sweep", "--resume", "s").code == 0  # from the copy that the other trial keeps
    assert facts(second)["weights_sha256"] == wanted and mhsa("verify", "s").code == 0
    for trial in (first, second):
        shutil.rmtree(trial)
    assert mhsa("sweep", "--resume", "s").code == 4 and not first.exists()
