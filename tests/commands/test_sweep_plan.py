"""mhsa sweep --dry-run: the plan's arithmetic, refused as the sweep would be, and nothing written."""

from __future__ import annotations

import contextlib
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.config.estimate import trial_disk, trial_memory
from mhsa_cli.config.load import load_config
from mhsa_cli.core.power import seed_power
from mhsa_cli.jobs.sweep import capacity, duration
from mhsa_cli.jobs.sweep.duration import FREE, sweep_time
from mhsa_cli.renderers.pictures.sweep_plan import too_few
from tests.commands.shell import SMALL, mhsa

GIB = 2**30
GRID = [*SMALL, "eval_sequences=9", "n_heads=1,2,4"]
TINY = [text for text in SMALL if not text.startswith("epochs")] + ["epochs=0", "eval_sequences=1"]
usage = namedtuple("usage", "total used free")


@contextlib.contextmanager
def machine(memory: int = 3 * GIB) -> Iterator[None]:
    """A machine whose free memory and disk are known."""
    with (
        mock.patch.object(capacity, "free_memory", lambda: memory),
        mock.patch("mhsa_cli.jobs.sweep.arithmetic.free_memory", lambda: memory),
        mock.patch("mhsa_cli.runs.new_folder.shutil.disk_usage", lambda path: usage(9, 9, 7 * GIB)),
    ):
        yield


def test_the_plan_is_told_and_nothing_is_written(here: Path) -> None:
    before = sorted(here.rglob("*"))
    one = load_config(None, [*GRID[:-1], "n_heads=4"])
    each = trial_memory(one.task, one.model, one.train)
    free = int(2 * (capacity.PROCESS + 2.2 * each) / capacity.SHARE)  # room for two models in each of two processes
    with machine(free):
        said = mhsa("sweep", *GRID, "--seeds", 5, "--jobs", 2, "--dry-run", "--json")
    assert said.code == 0 and sorted(here.rglob("*")) == before
    found = said.json
    time, power = found.pop("time"), found.pop("power")
    cells = (load_config(None, [*GRID[:-1], f"n_heads={heads}"]) for heads in (1, 2, 4))
    counted = {"settings": 3, "skipped": 0, "seeds": 5, "trials": 15, "processes": 2, "together": 2}
    memory = {"memory": 2 * (capacity.PROCESS + 2 * each), "memory_free": free}
    disk = {"disk": sum(5 * trial_disk(c.task, c.model, c.train) for c in cells), "disk_free": 7 * GIB}
    assert found == counted | memory | disk
    assert time["shapes"] == 3 and 1 <= time["measured"] <= 3 and 0 < time["seconds"] < 600
    assert (power["pairs"], power["comparisons"], power["least_for_ranks"]) == (2, 2, 8)


def test_a_cluster_s_time_is_not_known_and_needs_no_cluster(here: Path) -> None:
    before = sorted(here.rglob("*"))
    arguments = ("sweep", *GRID, "lr=0.1,0.2", "n_kv_heads=null,2", "--skip-invalid", "--engine", "ray", "--dry-run")
    found = mhsa(*arguments, "--json").json
    assert (found["time"], found["processes"], found["memory_free"]) == (None, None, None)
    assert (found["settings"], found["skipped"], found["together"]) == (10, 2, 8)
    said = mhsa(*arguments)
    assert said.code == 0 and said.out and sorted(here.rglob("*")) == before


BIG = ["d_model=512", "n_layers=2", "d_mlp=2048", "residual=true", "n_heads=4,8"]
REFUSED = {
    "grid": ([*SMALL, "n_heads=1,3"], 2),
    "seeds": ([*SMALL, "--seeds", "9000000"], 2),
    "memory": ([*BIG, "--jobs", "9"], 2),
    "disk": ([*BIG, "--seeds", "100", "--runs", "."], 5),
    "name": ([*SMALL, "--name", "-"], 2),
    "taken": ([*SMALL, "--name", "taken"], 2),
    "no parent": ([*SMALL, "--runs", "a/b"], 5),
    "no folder": ([*SMALL, "--runs", "file"], 5),
    "dangling": ([*SMALL, "--runs", "dangling"], 5),
    "block": ([*SMALL, "model.attention=nowhere.py:A"], 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_sweep_refuses_the_dry_run_refuses_in_the_same_words(case: str, here: Path) -> None:
    arguments, code = REFUSED[case]
    (here / "file").touch()
    (here / "dangling").symlink_to("nowhere")
    if case == "taken":
        assert mhsa("sweep", *TINY, "--seeds", 1, "--name", "taken").code == 0
    before = sorted(here.rglob("*"))
    with machine():
        dry = mhsa("sweep", *arguments, "--dry-run")
        assert (dry.code, dry.out) == (code, "") and sorted(here.rglob("*")) == before
        real = mhsa("sweep", *arguments)
    assert (real.code, real.err) == (code, dry.err)


def test_a_resumed_sweep_has_no_dry_run() -> None:
    said = mhsa("sweep", "--resume", "s", "--dry-run")
    assert said.code == 2 and "--dry-run" in said.err


def test_a_sweep_says_before_it_trains_what_its_seeds_cannot_show() -> None:
    cells = [{"model.n_heads": "1"}, {"model.n_heads": "2"}]
    note = too_few(seed_power(cells, 2))
    assert note is not None and note in mhsa("sweep", *TINY, "n_heads=1,2", "--seeds", 2).err.splitlines()
    assert mhsa("sweep", *TINY, "n_heads=1", "--seeds", 2).err.startswith("2 trials")
    least = next(n for n in range(1, 20) if too_few(seed_power(cells, n)) is None)
    assert least == 7 and mhsa("sweep", *TINY, "n_heads=1,2", "--seeds", least).err.startswith("14 trials")


def test_the_time_of_a_sweep_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two learning rates are one shape; chunks go to the first free process; the middle shape is interpolated."""
    small, middle, large = (load_config(None, [*SMALL, f"n_layers={n}", "residual=true"]) for n in (1, 2, 3))
    faster = small.model_copy(update={"train": small.train.model_copy(update={"lr": 0.1})})
    work = {config.model.n_layers: duration._work(config) for config in (small, middle, large)}
    share = (work[2] - work[1]) / (work[3] - work[1])
    assert 0 < share < 1
    costs = {1: duration._Cost(1.0, 4.0, 2.0), 3: duration._Cost(5.0, 8.0, 10.0)}
    now = iter([0.0, 0.5, duration.SECONDS + 1])
    monkeypatch.setattr(duration.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(duration, "_measure", lambda config, size, seconds: costs[config.model.n_layers])
    monkeypatch.setattr(duration, "cores", lambda: 1)
    found = sweep_time([small, faster, middle, large], [4, 4, 4, 4], seeds=5, slots=2, start=0.25)
    assert (found.shapes, found.measured) == (3, 2)
    # chunks of 4 and 1 trials: 16 and 7 s for each of the small ones, and of the largest 68 and 23
    between = [16 + share * (68 - 16), 7 + share * (23 - 7)]
    ends = [0.0, 0.0]
    for chunk in (16.0, 7.0, 16.0, 7.0, *between, 68.0, 23.0):
        ends = sorted([ends[0] + chunk, ends[1]])
    assert found.seconds == pytest.approx(0.5 + 2 * max(ends))  # two processes share one core


def test_trials_are_shared_among_the_processes() -> None:
    sizes = {(5, 2): 3, (5, 9): 1, (200, 2): 64}
    assert {given: capacity.stack_size(load_config(None, []), *given, None) for given in sizes} == sizes


def test_the_first_few_shapes_are_spread_over_all_of_them() -> None:
    shapes = [load_config(None, [f"n_layers={n}", "residual=true"]) for n in (1, 2, 3, 4, 5)]
    assert [shape.model.n_layers for shape in duration._spread_out(shapes)] == [5, 1, 3, 4, 2]
    assert duration._spread_out(shapes[:1]) == shapes[:1]


def test_every_setting_of_training_that_changes_the_cost_makes_a_shape() -> None:
    train = load_config(None, []).train
    assert set(FREE) <= set(type(train).model_fields) and not {"batch_size", "epochs", "eval_every"} & set(FREE)
