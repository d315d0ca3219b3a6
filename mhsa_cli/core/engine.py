"""Training as a generator of records. It never prints, never touches a file: whoever iterates decides what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from mhsa_cli.config.schema import Config
from mhsa_cli.core.checkpoint import pack, restore
from mhsa_cli.core.heads.snapshots import Snapshots, snapshot_steps
from mhsa_cli.core.model import TransformerLM, build
from mhsa_cli.core.stack import Stack, learning_rate, unstack
from mhsa_cli.core.tasks import Task, TrainBatches, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.errors import NonFiniteError
from mhsa_cli.records import EpochRecord, EvalRecord, Record, SaveRecord, SnapshotRecord, StepRecord

REPORT = 16  # steps whose figures are read from the device together
MAX_RECORDS = 2000  # step records of a run when log_every is left out


def build_model(config: Config, task: Task, seed: int | None = None) -> TransformerLM:
    """Build the model of a config with the initial weights of its seed (or of another one)."""
    generator = stream_generator(config.train.seed if seed is None else seed, "init", 0)
    max_seq_len = config.model.max_seq_len or task.seq_len
    return build(config.model, vocab_size=task.vocab_size, max_seq_len=max_seq_len, generator=generator)


class Trainer:
    """One training run: iterate `records()`; afterwards `model()` is the trained model.

    The model is the only one of a stack of one. `resume` takes a checkpoint's files; training then goes on as if it
    had never stopped. `stop` is asked after every step; once it says True the step's checkpoint is yielded and the
    run ends. `watch` also yields every head's scores at some steps. Reading records late, seldom or never does not
    change a weight, and neither does watching.
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
    ) -> None:
        self.config, self.task, self.device, self.stop = config, task, device, stop
        train = config.train
        torch.set_num_threads(train.threads)
        self.total = train.epochs * train.steps_per_epoch
        self.log_every = train.log_every or max(1, math.ceil(self.total / MAX_RECORDS))
        self.eval_every = train.eval_every or train.steps_per_epoch
        self.save_every = train.save_every or train.steps_per_epoch
        self.stack = Stack([model or build_model(config, task)], [train.seed], train, device)
        self.batches = TrainBatches(task, train.seed, train.batch_size)
        self.eval_batch = fixed_batch(task, train.seed, "eval", train.eval_sequences)
        self.epoch_loss_sum = 0.0 if resume is None else restore(self.stack, 0, resume)
        self.resumed = resume is not None
        self.snapshots = Snapshots(self.stack, task) if watch else None
        self.snapshot_steps = snapshot_steps(self.total)
        self.last_eval = self.evaluate()

    @property
    def step(self) -> int:
        """Count the updates made so far."""
        return self.stack.updates

    @property
    def parameters(self) -> int:
        """Count the model's parameters."""
        return self.stack.size

    def model(self) -> TransformerLM:
        """Copy the model as it stands, in eval mode."""
        return unstack(self.stack.model)

    def _ids(self, ids: Tensor) -> Tensor:
        return ids.unsqueeze(0).to(self.device, non_blocking=True)  # (1, B, T)

    def evaluate(self) -> EvalRecord:
        """Measure the fixed evaluation rows, always the same ones."""
        loss, accuracy = self.stack.evaluate(self._ids(self.eval_batch.inputs), self._ids(self.eval_batch.targets))
        self.last_eval = EvalRecord(self.step, loss[0], accuracy[0])
        return self.last_eval

    def save(self, reason: str) -> SaveRecord:
        """Write the state after the last finished step as a checkpoint's files."""
        return SaveRecord(self.step, pack(self.stack, 0, self.epoch_loss_sum, self.config.to_dict()), reason)

    def records(self) -> Iterator[Record]:
        """Train, yielding what was measured and what should be saved, in order of steps."""
        if not self.resumed:
            yield self.last_eval
            yield from self._look(flush=True)
            yield self.save("start")
        pending: list[tuple[int, Tensor, Tensor]] = []
        while self.step < self.total:
            batch = self.batches[self.step + 1]
            step = self.step + 1
            lr = learning_rate(self.config.train, step)
            try:
                self.stack.step(self._ids(batch.inputs), self._ids(batch.targets), lr)
            except NonFiniteError as error:
                yield from self._read(pending)
                yield from self._flush()
                loss = float(self.stack.loss[0])
                if not math.isfinite(loss):
                    yield StepRecord(step, loss, float(self.stack.accuracy[0]), lr)
                yield self.save("stop")  # the state after the last finite step: nothing of this one was applied
                error.hint = f"lower train.lr (now {self.config.train.lr:g}) or set train.grad_clip=1.0"
                raise
            pending.append((step, self.stack.loss, self.stack.accuracy))
            epoch_ends = step % self.config.train.steps_per_epoch == 0
            evaluate, save = step % self.eval_every == 0, step % self.save_every == 0
            stopping, last = self.stop(), step == self.total
            yield from self._look(flush=epoch_ends or save or stopping or last)
            if not (epoch_ends or evaluate or save or stopping or last or len(pending) == REPORT):
                continue
            yield from self._read(pending)
            pending = []
            if evaluate or epoch_ends:
                record = self.evaluate()
                yield record
            if epoch_ends:
                mean = self.epoch_loss_sum / self.config.train.steps_per_epoch
                self.epoch_loss_sum = 0.0
                epoch = step // self.config.train.steps_per_epoch
                yield EpochRecord(epoch, step, mean, record.loss, record.accuracy)
            if stopping or last:
                yield self.save("end" if last else "stop")
                return
            if save:
                yield self.save("periodic")

    def _look(self, flush: bool) -> Iterator[SnapshotRecord]:
        """Score the heads, if this is a step for it; with `flush` nothing is left for later."""
        if self.snapshots is not None:
            full = self.step in self.snapshot_steps and self.snapshots.note()
            if full or flush:
                yield from self._flush()

    def _flush(self) -> Iterator[SnapshotRecord]:
        yield from self.snapshots.flush() if self.snapshots is not None else ()

    def _read(self, pending: list[tuple[int, Tensor, Tensor]]) -> Iterator[StepRecord]:
        """Bring the figures of a few steps from the device in one transfer."""
        if not pending:
            return
        figures = torch.stack([torch.cat(p[1:]) for p in pending]).tolist()
        for (step, *_), (loss, accuracy) in zip(pending, figures, strict=True):
            self.epoch_loss_sum += loss
            if step % self.log_every == 0 or step in (1, self.total):
                yield StepRecord(step, loss, accuracy, learning_rate(self.config.train, step))
