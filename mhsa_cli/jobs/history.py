"""What a run's metrics.jsonl tells, read once and line by line: a run may have recorded millions of steps."""

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

SHOWN, ENDS = 12, 5  # epochs that a table shows; of more, so many first and last ones


class Whole:
    """A line of which every point is kept, in 16 bytes each."""

    def __init__(self) -> None:
        self._steps, self._values = array("q"), array("d")

    def add(self, step: int, value: float) -> None:
        """Add a point; it takes the place of the last one if that is of the same step."""
        if self._steps and self._steps[-1] == step:
            self._values[-1] = value
            return
        self._steps.append(step)
        self._values.append(value)

    def series(self, name: str, role: str) -> Series:
        """Give it as a line of a curve."""
        return Series(name, self._steps, self._values, role)


class History:
    """A run's curve and epochs. `whole` keeps every point of its curve; without, it is thinned as a picture may be.

    `last` names the records of the last step by their type and step; `torn` counts those that a crash cut short.
    Raises: RunError, StorageError.
    """

    def __init__(self, run: RunDir, *, whole: bool = False) -> None:
        kind: type[Whole] | type[Thinned] = Whole if whole else Thinned
        self._train, self._eval = kind(), kind()
        self._first: list[EpochRecord] = []
        self._latest: deque[EpochRecord] = deque(maxlen=ENDS)
        self._epochs = 0
        self._step = -1
        self.last: set[tuple[type[MetricRecord], int]] = set()
        records = run.records(METRICS)
        for record in records_of(records):
            self.add(record)
        self.torn = records.torn

    def add(self, record: MetricRecord) -> None:
        """Take in one record."""
        if isinstance(record, StepRecord):
            self._train.add(record.step, record.loss)
        elif isinstance(record, EvalRecord):
            self._eval.add(record.step, record.loss)
        else:
            self._epochs += 1
            self._latest.append(record)
            if self._epochs <= SHOWN:
                self._first.append(record)
        if record.step != self._step:
            self._step = record.step
            self.last.clear()
        self.last.add((type(record), record.step))

    def series(self, name: str | None = None) -> list[Series]:
        """Give a train and an eval line (called `name`, if given), without empty ones."""
        found = [
            self._train.series("train" if name is None else name, "train"),
            self._eval.series("eval" if name is None else f"{name} eval", "eval"),
        ]
        return [replace(one, run=name) for one in found if one.steps]

    @property
    def epochs(self) -> Sequence[EpochRecord | None]:
        """List the epochs; of many the first and the last ones, and None between them."""
        if self._epochs <= SHOWN:
            return self._first
        return [*self._first[:ENDS], None, *self._latest]
