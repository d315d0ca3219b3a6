"""Too little memory or disk is said before anything is trained or made, with the way out; memory bounds a stack."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.config.estimate import trial_disk, trial_memory
from mhsa_cli.config.load import load_config
from mhsa_cli.errors import UsageError
from mhsa_cli.jobs.sweep import capacity
from mhsa_cli.jobs.sweep.capacity import largest_stack
from tests.commands.shell import mhsa

MIB, GIB = 2**20, 2**30
BIG = ["d_model=512", "n_layers=2", "d_mlp=2048", "residual=true", "n_heads=4,8"]


def test_too_little_memory_is_said_before_the_start() -> None:
    with mock.patch.object(capacity, "free_memory", lambda: GIB):
        said = mhsa("sweep", *BIG, "--jobs", 4)
        assert said.code == 2 and "--jobs" in said.err
        assert not list(Path("runs").iterdir())
        assert mhsa("sweep", "d_model=8", "n_heads=1,2", "epochs=1", "steps_per_epoch=2", "--seeds", 1).code == 0


def test_too_little_disk_is_said_before_the_start() -> None:
    usage = namedtuple("usage", "total used free")
    with mock.patch("mhsa_cli.runs.new_folder.shutil.disk_usage", lambda path: usage(9, 9, 10 * MIB)):
        said = mhsa("sweep", *BIG)
    assert said.code == 5 and "--runs DIR" in said.err
    assert not list(Path("runs").iterdir())


def test_a_stack_is_as_large_as_memory_allows() -> None:
    config = load_config(None, ["d_model=256", "n_layers=2", "d_mlp=1000", "residual=true"])
    one = trial_memory(config.task, config.model, config.train)
    for count in (1, 5, 40):
        assert largest_stack(config, int((capacity.PROCESS + (count + 0.5) * one) / capacity.SHARE)) == count
    assert largest_stack(config, 10**13) == largest_stack(config) == 64
    shared = config.model_copy(update={"train": config.train.model_copy(update={"threads": 2})})
    assert largest_stack(shared) == 1  # only then is a trial what `mhsa train` makes of it
    with pytest.raises(UsageError, match="memory of a process"):
        largest_stack(config, capacity.PROCESS)
    cuda = config.model_copy(update={"train": config.train.model_copy(update={"device": "cuda"})})
    assert largest_stack(cuda, 1) == 64  # not the memory that counts there


@pytest.mark.parametrize(("limit", "free"), [("9000000", 7000000), ("1000000", 0), ("max", None), (None, None)])
def test_free_memory_is_what_the_machine_and_a_container_leave(
    limit: str | None, free: int | None, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "CGROUP", here)
    (here / "memory.current").write_text("2000000\n")
    if limit is not None:
        (here / "memory.max").write_text(f"{limit}\n")
    found = capacity.free_memory()
    assert found is not None and (found == free if free is not None else 16 * MIB < found < 2**50)


def test_a_trial_takes_no_more_disk_than_was_thought_and_not_much_less() -> None:
    for settings in (
        ["epochs=3"],
        ["d_model=64", "n_layers=3", "residual=true", "seq_len=24", "epochs=5", "n_heads=2"],
    ):
        given = ["task.name=copy", "steps_per_epoch=20", *settings]
        assert mhsa("sweep", *given, "--seeds", 1, "--name", f"s{len(settings)}").code == 0
        config = load_config(None, given)
        files = [path for path in Path(f"runs/s{len(settings)}/seed=42").rglob("*") if path.is_file()]
        found, thought = sum(path.stat().st_size for path in files), trial_disk(config.task, config.model, config.train)
        assert found < thought < 3 * found
