"""The curves and epochs in a run's metrics.jsonl, read line by line: a run may have millions of steps."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from mhsa_cli.records.thinning import Thinned
from mhsa_cli.records.training import EpochRecord, EvalRecord, Series, StepRecord
from mhsa_cli.runs.listing import METRICS
from mhsa_cli.runs.metrics import MetricRecord, records_of
from mhsa_cli.runs.run_dir import RunDir

SHOWN, ENDS = 12, 5  # a table shows up to SHOWN epochs; of more, the first and last ENDS
FEW, SPREAD = 4, 64  # epochs of a short table, and of those kept to choose them from


class Whole:
    """A curve with all its points, 16 bytes each."""

    def __init__(self) -> None:
        self._steps, self._values = array("q"), array("d")

    def add(self, step: int, value: float) -> None:
        """Add a point; it replaces the last one if that has the same step."""
        if self._steps and self._steps[-1] == step:
            self._values[-1] = value
            return
        self._steps.append(step)
        self._values.append(value)

    def series(self, name: str, role: str) -> Series:
        return Series(name, self._steps, self._values, role)


class History:
    """A run's curves and epochs. Without `whole` the curves are thinned, enough for a picture.

    `last` holds type and step of the records of the last step; `torn` counts records that a crash cut short.
    Raises: RunError, StorageError.
    """

    def __init__(self, run: RunDir, *, whole: bool = False) -> None:
        kind: type[Whole] | type[Thinned] = Whole if whole else Thinned
        self._train, self._eval = kind(), kind()
        self._first: list[EpochRecord] = []
        self._latest: deque[EpochRecord] = deque(maxlen=ENDS)
        self._spread: list[EpochRecord] = []
        self._epochs, self._stride = 0, 1
        self._step = -1
        self.last: set[tuple[type[MetricRecord], int]] = set()
        records = run.records(METRICS)
        for record in records_of(records):
            self.add(record)
        self.torn = records.torn

    def add(self, record: MetricRecord) -> None:
        if isinstance(record, StepRecord):
            self._train.add(record.step, record.loss)
        elif isinstance(record, EvalRecord):
            self._eval.add(record.step, record.loss)
        else:
            if self._epochs % self._stride == 0:
                self._spread.append(record)
            if len(self._spread) == SPREAD:
                self._spread, self._stride = self._spread[::2], 2 * self._stride
            self._epochs += 1
            self._latest.append(record)
            if self._epochs <= SHOWN:
                self._first.append(record)
        if record.step != self._step:
            self._step = record.step
            self.last.clear()
        self.last.add((type(record), record.step))

    def series(self, name: str | None = None) -> list[Series]:
        """Return the train and the eval curve, called `name` if given, without empty ones."""
        curves = [
            self._train.series("train" if name is None else name, "train"),
            self._eval.series("eval" if name is None else f"{name} eval", "eval"),
        ]
        return [replace(curve, run=name) for curve in curves if curve.steps]

    @property
    def epochs(self) -> Sequence[EpochRecord | None]:
        """Return the epochs; of many, the first and last ones with None between them."""
        if self._epochs <= SHOWN:
            return self._first
        return [*self._first[:ENDS], None, *self._latest]

    @property
    def few_epochs(self) -> list[EpochRecord]:
        """Return a few epochs, spread evenly: the first, the last, and some between."""
        known = {record.epoch: record for record in [*self._spread, *self._latest]}
        if len(known) <= FEW:
            return [known[epoch] for epoch in sorted(known)]
        first, last = min(known), max(known)
        wanted = [first + (last - first) * number / (FEW - 1) for number in range(FEW)]
        return [known[min(known, key=lambda epoch: abs(epoch - place))] for place in wanted]  # noqa: B023
