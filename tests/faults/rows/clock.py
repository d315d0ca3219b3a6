"""Clocks set back, set forward and jumping, and files of any age: same weights, same order, no negative time."""

from __future__ import annotations

import datetime as dates
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.client import ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.kill import in_memory

HERE = "tests.faults.rows.clock"
SIZES = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "batch_size=5", "eval_sequences=9", "epochs=2"]
SIZES += ["steps_per_epoch=4", "save_every=2"]
YEAR = 365.25 * 86400
CLOCKS = ("set back", "1970", "before 1970", "decades ahead", "running back", "jumping")
AGES = {"1970": 0, "2001": 1_000_000_000, "2100": 4_102_444_800}
NEWEST = "b"


class Case(NamedTuple):
    """The clock that later commands meet; the age that all files get then."""

    clock: str
    age: str
    seed: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """All clocks and all ages in turn."""
    draw, ages = random.Random(seed), list(AGES)
    for number in range(count):
        yield Case(CLOCKS[number % len(CLOCKS)], ages[number % len(ages)], draw.randrange(1 << 30))


def clock(patch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    """Have another clock in this process."""
    real, draw, calls = time.time, random.Random(seed), [0]

    def now() -> float:
        calls[0] += 1
        return {
            "set back": lambda: real() - 40 * YEAR,
            "1970": lambda: 0.0,
            "before 1970": lambda: -3 * YEAR,
            "decades ahead": lambda: real() + 50 * YEAR,
            "running back": lambda: real() - 3600.0 * calls[0],
            "jumping": lambda: draw.uniform(0, 200 * YEAR),
        }[kind]()

    have(patch, now)


def have(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Let every way to ask for the time give this one; monotonic clocks go on."""
    from mhsa_cli.runs import lock, run_dir

    class Date(dates.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> dates.datetime:  # type: ignore[override]
            return dates.datetime(1970, 1, 1, tzinfo=dates.UTC) + dates.timedelta(seconds=now())

    patch.setattr(time, "time", now)
    patch.setattr(time, "time_ns", lambda: int(now() * 1e9))
    for module in (lock, run_dir):
        patch.setattr(module, "datetime", Date)


def told(server: ForkServer, folder: Path, argv: list[str], prepare: list[Any]) -> Any:
    """Run a command that prints a document."""
    done = server.run([*argv, "--json"], folder, prepare)
    assert done.code == 0, f"{argv}: exit code {done.code}: {done.err[-300:]}"
    return json.loads(done.out)


def figures(run: Path) -> tuple[Any, ...]:
    """What a run came to, without the time it took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curve = [(line["kind"], line["step"], line["loss"]) for line in lines]
    return json.loads((run / "run.json").read_text())["weights_sha256"], curve


@cache
def usual(server: ForkServer) -> list[tuple[Any, ...]]:
    """The same with the clock as it is."""
    with tempfile.TemporaryDirectory() as name:
        return work(server, Path(name), [])


def work(server: ForkServer, folder: Path, prepare: list[Any]) -> list[tuple[Any, ...]]:
    """Train, train and resume, and sweep; the clock is another one from the second on."""
    told(server, folder, ["train", *SIZES, "--name", "a"], prepare[:-1])
    for name in ("s", "c"):
        more = ["train", *SIZES, "--name", name] if name == "c" else ["sweep", *SIZES, "n_heads=1,2", "--seeds", "2"]
        told(server, folder, [*more, *(["--name", "s"] if name == "s" else [])], prepare)
    stopped = server.run(["train", *SIZES, "--name", NEWEST], folder, [*prepare, (f"{HERE}:stop_after", 5)])
    assert stopped.code == 130, stopped.err[-300:]
    told(server, folder, ["train", "--resume", "newest"], prepare)
    trials = sorted((folder / "runs/s").glob("*/run.json"))
    assert len(trials) == 4
    return [figures(folder / "runs" / name) for name in ("a", "c", NEWEST)] + [figures(path.parent) for path in trials]


def stop_after(patch: pytest.MonkeyPatch, step: int) -> None:
    """Get Ctrl-C in the middle of a step."""
    import signal

    from mhsa_cli.core.training.stack import Stack

    real = Stack.step

    def instead(self: Stack, *given: Any, **more: Any) -> None:
        if self.updates + 1 == step:
            signal.raise_signal(signal.SIGINT)
        real(self, *given, **more)

    patch.setattr(Stack, "step", instead)


def check(case: Case, place: Place) -> None:
    """Work by that clock, then let all files be of that age."""
    wanted = usual(place.server)
    with in_memory(place) as place:
        server, folder = place.server, place.path
        prepare = [*place.mutant, (f"{HERE}:clock", case.clock, case.seed)]
        assert work(server, folder, prepare) == wanted, "the clock changes what is trained"
        rows = told(server, folder, ["runs"], prepare)
        assert [Path(row["run"]).name for row in rows] == [NEWEST, "c", "a"], "they are not in the order they began in"
        trials = told(server, folder, ["runs", "--runs", "runs/s"], prepare)
        assert [Path(row["run"]).name for row in trials] == [f"n_heads={h}_seed={s}" for h in (2, 1) for s in (43, 42)]
        for row in [*rows, *trials]:
            assert 0 <= row["seconds"] < 3600, f"{row['run']} took {row['seconds']} s"
        for path in [folder, *folder.rglob("*")]:
            os.utime(path, (AGES[case.age], AGES[case.age]))
        assert told(server, folder, ["runs"], prepare) == rows
        assert told(server, folder, ["runs", "newest"], prepare) == rows[0]
        assert told(server, folder, ["verify", "newest"], prepare)["checkpoint"] == 8
        told(server, folder, ["sweep", "--resume", "s"], prepare)
        assert [figures(folder / "runs" / name) for name in ("a", "c", NEWEST)] == wanted[:3]


def by_the_clock(patch: pytest.MonkeyPatch) -> None:
    """The mutant: runs stand in the order of the clock alone."""
    from mhsa_cli.runs import listing

    real = listing.newest_first

    def instead(folders: list[Path], count: int | None = None) -> list[Any]:
        return sorted(real(folders), key=lambda row: row.started or "", reverse=True)[:count]

    patch.setattr(listing, "newest_first", instead)


ROW = Row(
    fault="clocks set back, ahead, running back and jumping; files of 1970, 2001 and 2100",
    promise="P2",
    quick=6,
    long=60,
    cases=cases,
    check=check,
    mutant=f"{HERE}:by_the_clock",
)
