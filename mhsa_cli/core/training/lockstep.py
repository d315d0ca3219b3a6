"""Lockstep training of runs of one shape; each is bit for bit what it would be alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mhsa_cli.config.estimate import log_every
from mhsa_cli.config.schema import Config
from mhsa_cli.core.heads.own_scores import OwnScore
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM, build
from mhsa_cli.core.tasks import Batch, Task, TrainBatches, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.training.checkpoint import pack, restore
from mhsa_cli.core.training.early_stop import Waiting, ended_by
from mhsa_cli.core.training.snapshots import Snapshots, map_steps, snapshot_steps
from mhsa_cli.core.training.stack import Stack, learning_rate, parameter_dtype, unstack
from mhsa_cli.core.training.state import read_waiting
from mhsa_cli.errors import NonFiniteError
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import (
    EndedBy,
    EndRecord,
    EpochRecord,
    EvalRecord,
    FailRecord,
    Record,
    SaveRecord,
    StepRecord,
)

REPORT = 16  # steps whose figures are read from the device together

RunRecords = Iterator[tuple[int, Record | FailRecord | EndRecord]]


def build_model(
    config: Config, task: Task, seed: int | None = None, custom: CustomAttention | None = None
) -> TransformerLM:
    """Build a config's model in its dtype, with the initial weights of its seed or another one.

    `custom` is the block that model.attention names, if it names one. Raises: UsageError without it.
    """
    generator = stream_generator(config.train.seed if seed is None else seed, "init", 0)
    sizes = {"vocab_size": task.vocab_size, "max_seq_len": config.model.max_seq_len or task.seq_len}
    return build(config.model, **sizes, generator=generator, custom=custom).to(parameter_dtype(config.train))


class Group:
    """Lockstep training of M runs whose configs differ only in their seeds; `records()` yields (run, record).

    `resume` holds each run's checkpoint files, all of one step. A checkpoint is yielded before its step is evaluated,
    so a resume yields that evaluation again. `stop` is called after every step; True saves and ends all runs.
    `wants_save` chooses the steps of checkpoints, by default those of train.save_every. A run with a non-finite loss or
    gradient ends with a FailRecord, after a checkpoint of its last finite weights if there are any, and one that has
    reached train.stop_at or waited for train.patience with an EndRecord, after a checkpoint (`ended` holds it with the
    model); the others go on unchanged. `scores` are the user's own, kept in the snapshots.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        task: Task,
        device: torch.device,
        *,
        models: Sequence[TransformerLM] | None = None,
        resume: Sequence[Mapping[str, bytes]] | None = None,
        stop: Callable[[], bool] = lambda: False,
        wants_save: Callable[[int], bool] | None = None,
        watch: bool = True,
        scores: Sequence[OwnScore] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock, self.seconds = clock, 0.0  # of training steps alone
        self.configs, self.task, self.device, self.stop = list(configs), task, device, stop
        self.train, self.scores = configs[0].train, scores
        train = self.train
        if any(not same_but_seed(config, configs[0]) for config in configs):
            raise ValueError("the configs of a group must differ in their seeds only")
        torch.set_num_threads(train.threads)
        self.total = train.epochs * train.steps_per_epoch
        self.log_every = log_every(train)
        self.eval_every = train.eval_every or train.steps_per_epoch
        save_every = train.save_every or train.steps_per_epoch
        self.wants_save = wants_save or (lambda step: step % save_every == 0)
        self.runs = list(range(len(configs)))  # the run in each slot of the stack
        seeds = [config.train.seed for config in configs]
        self.stack = Stack(models or [build_model(config, task) for config in configs], seeds, train, device)
        self.batches = [TrainBatches.of(task, config.train) for config in configs]
        self._block: tuple[int, Batch] | None = None  # its index, and the rows of all runs in the stack
        rows = _stacked([fixed_batch(task, seed, "eval", train.eval_sequences) for seed in seeds])
        self.eval_inputs, self.eval_targets = self._on_device(rows.inputs), self._on_device(rows.targets)
        self.epoch_loss_sums, self.waiting = [0.0] * len(configs), [Waiting()] * len(configs)
        self.ended: dict[int, tuple[EndRecord, TransformerLM]] = {}
        if resume is not None:
            self.epoch_loss_sums = [restore(self.stack, slot, files) for slot, files in enumerate(resume)]
            self.waiting = [read_waiting(files) for files in resume]
        self.resumed = resume is not None
        self.snapshots = Snapshots(self.stack, task, scores) if watch else None
        self.map_steps, self.snapshot_steps = map_steps(self.total), snapshot_steps(self.total)
        self.last_eval: list[EvalRecord] = [EvalRecord(0, math.nan, math.nan)] * len(configs)
        self._first = self.step
        self.evaluate()

    @property
    def step(self) -> int:
        """The number of updates made so far."""
        return self.stack.updates

    def trained(self) -> tuple[int, float]:
        """Return the tokens per run trained here so far, and the seconds of the training steps alone."""
        return (self.step - self._first) * self.train.batch_size * self.task.seq_len, self.seconds

    def capture(self) -> SnapshotRecord | None:
        """Take the maps of the first run's heads as they are now, for a picture; see Snapshots.capture."""
        return None if self.snapshots is None else self.snapshots.capture()

    def facts(self, run: int) -> dict[str, str | int]:
        """Return what run.json keeps of a run's model and training."""
        config = self.configs[run]
        return {
            "task": self.task.name,
            "n_heads": config.model.n_heads,
            "parameters": self.stack.size // self.stack.M,
            "seed": config.train.seed,
            "total_steps": self.total,
        }

    def model(self, run: int) -> TransformerLM:
        """Copy a run's current model, or that with which it ended, in eval mode."""
        return self.ended[run][1] if run in self.ended else unstack(self.stack.model, self.runs.index(run))

    def _on_device(self, rows: Tensor) -> Tensor:
        return rows.to(self.device, non_blocking=True)

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the ids and targets of a step, (M, B, T); the runs' blocks are stacked once."""
        index, rows = self.batches[0].place(step)
        if self._block is None or self._block[0] != index:
            self._block = index, _stacked([self.batches[run].block(index) for run in self.runs])
        inputs, targets = (self._on_device(part[:, rows]) for part in self._block[1])
        return inputs, targets

    def evaluate(self) -> list[EvalRecord]:
        """Evaluate every run on its fixed evaluation rows: one record per slot."""
        figures = self.stack.evaluate(self.eval_inputs, self.eval_targets)
        records = [EvalRecord(self.step, loss, accuracy) for loss, accuracy in zip(*figures, strict=True)]
        for run, record in zip(self.runs, records, strict=True):
            self.last_eval[run] = record
        return records

    def save(self, slot: int, reason: str) -> SaveRecord:
        """Pack the state of a slot as a checkpoint."""
        run = self.runs[slot]
        files = pack(self.stack, slot, self.epoch_loss_sums[run], self.configs[run].to_dict(), self.waiting[run])
        return SaveRecord(self.step, files, reason)

    def _save_all(self, reason: str) -> RunRecords:
        finite = self.stack.finite_weights()
        if len(finite) < len(self.runs):
            yield from self._fail(self.step, finite)
        for slot, run in enumerate(self.runs):
            yield run, self.save(slot, reason)

    def records(self) -> RunRecords:
        """Train, yielding measurements and checkpoints; each run's records come in order of steps."""
        if not self.resumed:
            yield from ((run, self.last_eval[run]) for run in self.runs)
            yield from self._snapshot(flush=True)
            yield from self._save_all("start")
        elif self.step:
            # The loss sum of an epoch that was recorded before the checkpoint is 0.
            ending = self._ending()
            yield from self._measure(epoch_ends=self._epoch_ends and any(self.epoch_loss_sums))
            yield from self._end(ending)
        pending: list[tuple[int, Tensor, Tensor]] = []
        while self.step < self.total and self.runs:
            step, began = self.step + 1, self.clock()
            try:
                self.stack.step(*self._batch(step), learning_rate(self.train, step), checked=True)
                self.seconds += self.clock() - began
            except NonFiniteError:
                yield from self._read(pending)
                pending = []
                yield from self._flush()
                yield from self._fail(step, self.stack.finite_slots())
                continue
            pending.append((step, self.stack.loss, self.stack.accuracy))
            last, stopping, save = step == self.total, self.stop(), self.wants_save(step)
            ends, save = last or stopping, last or stopping or save
            yield from self._snapshot(flush=self._epoch_ends or save)
            if not (self._epoch_ends or self._wants_evaluation or save or len(pending) == REPORT):
                continue
            yield from self._read(pending)
            pending = []
            if save:  # before the evaluation, so that the step is kept if that fails
                yield from self._save_all("end" if last else "stop" if stopping else "periodic")
            ending = {} if ends else self._ending()
            if ending and not save:
                yield from self._flush()  # what was scored up to a checkpoint is written before it
                for run in ending:
                    yield run, self.save(self.runs.index(run), "end")
            yield from self._measure(self._epoch_ends)
            if ends:
                return
            yield from self._end(ending)

    @property
    def _epoch_ends(self) -> bool:
        return self.step % self.train.steps_per_epoch == 0

    @property
    def _wants_evaluation(self) -> bool:
        return self._epoch_ends or self.step % self.eval_every == 0

    def _evaluated(self) -> list[EvalRecord]:
        """Return the evaluation of every run at this step, made once."""
        known = [self.last_eval[run] for run in self.runs]  # a resume evaluates in __init__
        return known if all(record.step == self.step for record in known) else self.evaluate()

    def _ending(self) -> dict[int, EndedBy]:
        """Find the runs that end at this step, before the last one, with the setting by which they do."""
        train = self.train
        if (train.stop_at is None and train.patience is None) or not self._wants_evaluation or self.step >= self.total:
            return {}
        found = {run: ended_by(train, self._evaluated()[slot], self.waiting[run]) for slot, run in enumerate(self.runs)}
        return {run: by for run, by in found.items() if by is not None}

    def _end(self, ending: Mapping[int, EndedBy]) -> RunRecords:
        """Let runs leave the stack, each with its model."""
        for run, by in ending.items():
            record = EndRecord(self.step, by)
            self.ended[run] = record, self.model(run)
            yield run, record
        if ending:
            self._keep([slot for slot, run in enumerate(self.runs) if run not in ending])

    def _measure(self, epoch_ends: bool) -> RunRecords:
        """Evaluate if due after this step, and end the epoch."""
        if self._wants_evaluation and self.runs:
            records = self._evaluated()
            yield from zip(self.runs, records, strict=True)
            for run, record in zip(self.runs, records, strict=True):
                self.waiting[run] = self.waiting[run].after(record)
        steps = self.train.steps_per_epoch
        for run in self.runs if epoch_ends else ():
            mean, record = self.epoch_loss_sums[run] / steps, self.last_eval[run]
            self.epoch_loss_sums[run] = 0.0
            yield run, EpochRecord(self.step // steps, self.step, mean, record.loss, record.accuracy)

    def _fail(self, step: int, finite: list[int]) -> RunRecords:
        """End the runs in all slots but `finite`, with a checkpoint where their weights are finite."""
        savable, rate = self.stack.finite_weights(), learning_rate(self.train, step)
        for slot, run in enumerate(self.runs):
            if slot in finite:
                continue
            loss = float(self.stack.loss[slot])
            if not math.isfinite(loss):
                yield run, StepRecord(step, loss, float(self.stack.accuracy[slot]), rate)
            if slot in savable:
                yield run, self.save(slot, "stop")
            hint = f"lower train.lr (now {self.train.lr:g}) or set train.grad_clip=1.0"
            yield run, FailRecord(self.step, f"step {step}: {self.stack.nonfinite(slot)}", hint)
        self._keep(finite)

    def _keep(self, slots: list[int]) -> None:
        """Go on with the runs in some slots."""
        self.runs = [self.runs[slot] for slot in slots]
        if not slots:
            return
        self.stack = self.stack.keep(slots)
        self.eval_inputs, self.eval_targets = self.eval_inputs[slots], self.eval_targets[slots]
        if self._block is not None:
            index, rows = self._block
            self._block = index, Batch(rows.inputs[slots], rows.targets[slots])
        if self.snapshots is not None:
            self.snapshots = Snapshots(self.stack, self.task, self.scores)

    def _snapshot(self, flush: bool) -> RunRecords:
        """Take a snapshot if due at this step; yield the pending ones if `flush` or if there are many."""
        if self.snapshots is not None:
            full = self.step in self.snapshot_steps and self.snapshots.note(self.step in self.map_steps)
            if full or flush:
                yield from self._flush()

    def _flush(self) -> RunRecords:
        for slot, record in self.snapshots.flush() if self.snapshots is not None else ():
            yield self.runs[slot], record

    def _read(self, pending: list[tuple[int, Tensor, Tensor]]) -> RunRecords:
        """Read the figures of several steps from the device in one transfer."""
        if not pending:
            return
        figures = torch.stack([torch.stack(p[1:]) for p in pending]).tolist()  # steps x (loss, accuracy) x M
        for (step, *_), (losses, accuracies) in zip(pending, figures, strict=True):
            logged = step % self.log_every == 0 or step in (1, self.total)
            for run, loss, accuracy in zip(self.runs, losses, accuracies, strict=True):
                self.epoch_loss_sums[run] += loss
                if logged:
                    yield run, StepRecord(step, loss, accuracy, learning_rate(self.train, step))


def _stacked(batches: Sequence[Batch]) -> Batch:
    """Stack the rows of several runs: ids and targets (M, B, T)."""
    inputs, targets = (torch.stack(each) for each in zip(*batches, strict=True))
    return Batch(inputs, targets)


def records_of(group: Group) -> Iterator[Record]:
    """Train and yield the records without their run. Raises: NonFiniteError where a run fails, after its records."""
    for _, record in group.records():
        if isinstance(record, FailRecord):
            raise NonFiniteError(record.message, record.hint)
        if not isinstance(record, EndRecord):
            yield record


def same_but_seed(first: Config, second: Config) -> bool:
    """Whether two configs differ in their seeds only."""
    train = first.train.model_copy(update={"seed": second.train.seed})
    return (first.task, first.model, train) == (second.task, second.model, second.train)
