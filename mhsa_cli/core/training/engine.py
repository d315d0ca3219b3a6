"""Training as a generator of records. It never prints, never touches a file: whoever iterates decides what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import torch

from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import NonFiniteError
from mhsa_cli.records import EvalRecord, FailRecord, Record, SaveRecord


class Trainer:
    """One training run: iterate `records()`; afterwards `model()` is the trained model.

    It is a group of one. `resume` takes a checkpoint's files; training then goes on as if it had never stopped, with
    the evaluation of the checkpoint's own step, which comes after its save. `stop` is asked after every step; once it
    says True the step's checkpoint is yielded and the run ends. `watch` also yields every head's scores at some steps.
    Reading records late, seldom or never does not change a weight, and neither does watching.
    Raises: NonFiniteError before a non-finite loss or gradient reaches the weights.
    """

    def __init__(
        self,
        config: Config,
        task: Task,
        device: torch.device,
        *,
        model: TransformerLM | None = None,
        resume: Mapping[str, bytes] | None = None,
        stop: Callable[[], bool] = lambda: False,
        watch: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.config, self.task = config, task
        models, files = None if model is None else [model], None if resume is None else [resume]
        self.group = Group([config], task, device, models=models, resume=files, stop=stop, watch=watch, clock=clock)
        self._first = self.step

    @property
    def stack(self) -> Stack:
        """The training state."""
        return self.group.stack

    @property
    def step(self) -> int:
        """Count the updates made so far."""
        return self.group.step

    @property
    def total(self) -> int:
        """Count the updates of the whole run."""
        return self.group.total

    def trained(self) -> tuple[int, float]:
        """Count the tokens trained on here so far, and the seconds that took: evaluation and all else left out."""
        return (self.step - self._first) * self.config.train.batch_size * self.task.seq_len, self.group.seconds

    @property
    def last_eval(self) -> EvalRecord:
        """The newest evaluation."""
        return self.group.last_eval[0]

    def model(self) -> TransformerLM:
        """Copy the model as it stands, in eval mode."""
        return self.group.model(0)

    def evaluate(self) -> EvalRecord:
        """Measure the fixed evaluation rows, always the same ones."""
        return self.group.evaluate()[0]

    def save(self, reason: str) -> SaveRecord:
        """Write the state after the last finished step as a checkpoint's files."""
        return self.group.save(0, reason)

    def records(self) -> Iterator[Record]:
        """Train, yielding what was measured and what should be saved, in order of steps."""
        for _, record in self.group.records():
            if isinstance(record, FailRecord):
                raise NonFiniteError(record.message, record.hint)
            yield record
