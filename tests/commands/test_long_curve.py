"""A curve of millions of records: whoever reads it holds a bounded part of it, however long it is."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mhsa_cli.core.export import plain
from mhsa_cli.jobs import history
from mhsa_cli.jobs.history import ENDS, History
from mhsa_cli.records.thinning import Thinned
from mhsa_cli.records.training import EpochRecord, EvalRecord, StepRecord
from mhsa_cli.runs import disk, metrics
from mhsa_cli.runs.metrics import MetricRecord, MetricsFile, record_to_dict, records_of
from mhsa_cli.runs.metrics_audit import Curve, Rhythm
from mhsa_cli.runs.run_dir import RunDir


def trained(folder: Path, steps: int) -> RunDir:
    """A run that recorded each of its steps, ended, with epochs of three steps."""
    records: list[MetricRecord] = []
    for step in range(1, steps + 1):
        records.append(StepRecord(step, 2 + 1 / step, 0.5, 0.01))
        if step % 3 == 0:
            mean = sum(2 + 1 / one for one in range(step - 2, step + 1)) / 3
            records += [EvalRecord(step, 2.5, 0.5), EpochRecord(step // 3, step, mean, 2.5, 0.5)]
    with RunDir.create(folder, f"r{steps}") as run:
        run.append("metrics.jsonl", [record_to_dict(record) for record in records])
        run.update(status="finished", step=steps)
    return run


def verified(run: RunDir) -> None:
    curve = Curve(run.records("metrics.jsonl"), Rhythm(1, 3))
    assert (curve.problem, curve.last_step % 3) == ("", 0)


def truncated(run: RunDir) -> None:
    assert MetricsFile(run.path / "metrics.jsonl").truncate_after(10**6) == 0


READERS: list[Callable[[RunDir], object]] = [
    History,
    verified,
    truncated,
    lambda run: deque(plain.table(lambda: run.records("metrics.jsonl"), ["kind"]), maxlen=0),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is read, kept or written at once is little, so that few records are many."""
    for place, size in ((disk, "_CHUNK"), (metrics, "_BLOCK"), (plain, "BLOCK")):
        monkeypatch.setattr(place, size, 60)
    monkeypatch.setattr(history, "Thinned", partial(Thinned, limit=60))


@pytest.mark.parametrize("reader", READERS)
def test_four_times_the_records_take_no_more_memory(reader: Callable[[RunDir], object], tmp_path: Path) -> None:
    peaks = []
    for steps in (150, 600):
        run = trained(tmp_path, steps)
        tracemalloc.start()
        try:
            reader(run)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_what_is_kept_of_a_curve(tmp_path: Path) -> None:
    run = trained(tmp_path, 150)
    lines = list(records_of(run.records("metrics.jsonl")))
    kinds = (StepRecord, EvalRecord, EpochRecord)
    steps, evals, epochs = ([one for one in lines if isinstance(one, kind)] for kind in kinds)
    shown, whole = History(run), History(run, whole=True)
    for one in (shown, whole):
        train, own = one.series("a")
        assert (train.name, train.role, own.name, own.role) == ("a", "train", "a eval", "eval")
        assert list(one.epochs) == [*epochs[:ENDS], None, *epochs[-ENDS:]]
        assert one.last == {(kind, 150) for kind in kinds} and one.torn == 0
        assert list(zip(own.steps, own.values, strict=True)) == [(record.step, record.loss) for record in evals]
    points = [(one.step, one.loss) for one in steps]
    assert list(zip(train.steps, train.values, strict=True)) == points
    thinned = shown.series()[0]
    drawn = list(zip(thinned.steps, thinned.values, strict=True))
    assert drawn[0] == points[0] and drawn[-1] == points[-1] and set(drawn) <= set(points)
