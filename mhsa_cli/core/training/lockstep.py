"""Runs of one shape, trained together as a stack; each is bit for bit what it would have been alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mhsa_cli.config.schema import Config, TrainConfig
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM, build
from mhsa_cli.core.tasks import Task, TrainBatches, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.training.checkpoint import pack, restore
from mhsa_cli.core.training.snapshots import Snapshots, snapshot_steps
from mhsa_cli.core.training.stack import Stack, learning_rate, parameter_dtype, unstack
from mhsa_cli.errors import NonFiniteError
from mhsa_cli.records.training import EpochRecord, EvalRecord, FailRecord, Record, SaveRecord, StepRecord

REPORT = 16  # steps whose figures are read from the device together
MAX_RECORDS = 2000  # step records of a run when log_every is left out


def build_model(
    config: Config, task: Task, seed: int | None = None, custom: CustomAttention | None = None
) -> TransformerLM:
    """Build the model of a config with the initial weights of its seed (or of another one), in the config's dtype.

    `custom` is somebody's own block, where model.attention names one. Raises: UsageError without it.
    """
    generator = stream_generator(config.train.seed if seed is None else seed, "init", 0)
    max_seq_len = config.model.max_seq_len or task.seq_len
    sizes = {"vocab_size": task.vocab_size, "max_seq_len": max_seq_len}
    model = build(config.model, **sizes, generator=generator, custom=custom)
    return model.to(parameter_dtype(config.train))


class Group:
    """M runs whose configs differ in their seeds alone: iterate `records()` for (run, record), runs counted from 0.

    `resume` takes each run's checkpoint files, all of one step; training then goes on as if it had never stopped. A
    checkpoint is yielded before its step is evaluated, so a resume first yields that step's evaluation, once more.
    `stop` is asked after every step; once it says True that step's checkpoints are yielded and all end. `wants_save`
    decides after which steps checkpoints are yielded; left out, train.save_every does. A run whose loss or gradient is
    not finite ends with its last finite weights and a FailRecord, one whose weights are not finite with the FailRecord
    alone; the others go on, unchanged.
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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock, self.seconds = clock, 0.0  # what training itself took, nothing that observes it
        self.configs, self.task, self.device, self.stop = list(configs), task, device, stop
        self.train = train = configs[0].train
        if any(not same_but_seed(config, configs[0]) for config in configs):
            raise ValueError("the runs of a group differ in their seeds alone")
        torch.set_num_threads(train.threads)
        self.total = train.epochs * train.steps_per_epoch
        self.log_every = log_every(train)
        self.eval_every = train.eval_every or train.steps_per_epoch
        save_every = train.save_every or train.steps_per_epoch
        self.wants_save = wants_save or (lambda step: step % save_every == 0)
        self.runs = list(range(len(configs)))  # the run in each slot of the stack
        seeds = [config.train.seed for config in configs]
        self.stack = Stack(models or [build_model(config, task) for config in configs], seeds, train, device)
        self.batches = [TrainBatches(task, seed, train.batch_size) for seed in seeds]
        rows = [fixed_batch(task, seed, "eval", train.eval_sequences) for seed in seeds]
        self.eval_inputs = self._ids([batch.inputs for batch in rows])
        self.eval_targets = self._ids([batch.targets for batch in rows])
        sums = [0.0] * len(configs) if resume is None else [restore(self.stack, i, f) for i, f in enumerate(resume)]
        self.epoch_loss_sums = sums
        self.resumed = resume is not None
        self.snapshots = Snapshots(self.stack, task) if watch else None
        self.snapshot_steps = snapshot_steps(self.total)
        self.last_eval: list[EvalRecord] = [EvalRecord(0, math.nan, math.nan)] * len(configs)
        self._first = self.step
        self.evaluate()

    @property
    def step(self) -> int:
        """Count the updates made so far."""
        return self.stack.updates

    def trained(self) -> tuple[int, float]:
        """Count a run's tokens trained on here so far, and the seconds of all: evaluation and all else left out."""
        return (self.step - self._first) * self.train.batch_size * self.task.seq_len, self.seconds

    def facts(self, run: int) -> dict[str, str | int]:
        """Say what a run trains: run.json keeps it."""
        config = self.configs[run]
        return {
            "task": self.task.name,
            "n_heads": config.model.n_heads,
            "parameters": self.stack.size // self.stack.M,
            "seed": config.train.seed,
            "total_steps": self.total,
        }

    def model(self, run: int) -> TransformerLM:
        """Copy a run's model as it stands, in eval mode."""
        return unstack(self.stack.model, self.runs.index(run))

    def _ids(self, rows: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(rows)).to(self.device, non_blocking=True)  # (M, B, T)

    def evaluate(self) -> list[EvalRecord]:
        """Measure every run on its fixed evaluation rows, always the same ones; one record for each slot."""
        found = self.stack.evaluate(self.eval_inputs, self.eval_targets)
        records = [EvalRecord(self.step, loss, accuracy) for loss, accuracy in zip(*found, strict=True)]
        for run, record in zip(self.runs, records, strict=True):
            self.last_eval[run] = record
        return records

    def save(self, slot: int, reason: str) -> SaveRecord:
        """Write the state of a slot after the last finished step as a checkpoint's files."""
        run = self.runs[slot]
        files = pack(self.stack, slot, self.epoch_loss_sums[run], self.configs[run].to_dict())
        return SaveRecord(self.step, files, reason)

    def _all(self, records: Sequence[Record]) -> Iterator[tuple[int, Record | FailRecord]]:
        yield from zip(self.runs, records, strict=True)

    def _save_all(self, reason: str) -> Iterator[tuple[int, Record | FailRecord]]:
        sound = self.stack.sound_slots()
        if len(sound) < len(self.runs):
            yield from self._fail(self.step, sound)
        for slot, run in enumerate(self.runs):
            yield run, self.save(slot, reason)

    def records(self) -> Iterator[tuple[int, Record | FailRecord]]:
        """Train, yielding what was measured and what should be saved; each run's records come in order of steps."""
        if not self.resumed:
            yield from self._all([self.last_eval[run] for run in self.runs])
            yield from self._look(flush=True)
            yield from self._save_all("start")
        elif self.step:
            # Of an epoch that was told before the save (by an older version, or as the run failed) nothing is left.
            yield from self._measure(epoch_ends=self._epoch_ends and any(self.epoch_loss_sums))
        pending: list[tuple[int, Tensor, Tensor]] = []
        while self.step < self.total and self.runs:
            step, began = self.step + 1, self.clock()
            batches = [self.batches[run][step] for run in self.runs]
            inputs, targets = self._ids([b.inputs for b in batches]), self._ids([b.targets for b in batches])
            try:
                self.stack.step(inputs, targets, learning_rate(self.train, step), checked=True)
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
            yield from self._look(flush=self._epoch_ends or save)
            if not (self._epoch_ends or self._wants_evaluation or save or len(pending) == REPORT):
                continue
            yield from self._read(pending)
            pending = []
            if save:  # before the evaluation: should that fail, this step is kept
                yield from self._save_all("end" if last else "stop" if stopping else "periodic")
            yield from self._measure(self._epoch_ends)
            if ends:
                return

    @property
    def _epoch_ends(self) -> bool:
        return self.step % self.train.steps_per_epoch == 0

    @property
    def _wants_evaluation(self) -> bool:
        return self._epoch_ends or self.step % self.eval_every == 0

    def _measure(self, epoch_ends: bool) -> Iterator[tuple[int, Record | FailRecord]]:
        """Evaluate, if that is due after this step, and end its epoch."""
        if self._wants_evaluation and self.runs:
            known = [self.last_eval[run] for run in self.runs]  # a resume was measured as it began
            yield from self._all(known if all(e.step == self.step for e in known) else self.evaluate())
        step = self.step
        for run in self.runs if epoch_ends else ():
            mean, record = self.epoch_loss_sums[run] / self.train.steps_per_epoch, self.last_eval[run]
            self.epoch_loss_sums[run] = 0.0
            yield run, EpochRecord(step // self.train.steps_per_epoch, step, mean, record.loss, record.accuracy)

    def _fail(self, step: int, finite: list[int]) -> Iterator[tuple[int, Record | FailRecord]]:
        """End the runs in all slots but these: with their last finite state, or without one if that is not finite."""
        sound, rate = self.stack.sound_slots(), learning_rate(self.train, step)
        for slot, run in enumerate(self.runs):
            if slot in finite:
                continue
            loss = float(self.stack.loss[slot])
            if not math.isfinite(loss):
                yield run, StepRecord(step, loss, float(self.stack.accuracy[slot]), rate)
            if slot in sound:
                yield run, self.save(slot, "stop")
            hint = f"lower train.lr (now {self.train.lr:g}) or set train.grad_clip=1.0"
            yield run, FailRecord(self.step, f"step {step}: {self.stack.trouble(slot)}", hint)
        if not finite:
            self.runs = []
            return
        self.runs = [self.runs[slot] for slot in finite]
        self.stack = self.stack.keep(finite)
        self.eval_inputs, self.eval_targets = self.eval_inputs[finite], self.eval_targets[finite]
        if self.snapshots is not None:
            self.snapshots = Snapshots(self.stack, self.task)

    def _look(self, flush: bool) -> Iterator[tuple[int, Record | FailRecord]]:
        """Score the heads, if this is a step for it; with `flush` nothing is left for later."""
        if self.snapshots is not None:
            full = self.step in self.snapshot_steps and self.snapshots.note()
            if full or flush:
                yield from self._flush()

    def _flush(self) -> Iterator[tuple[int, Record | FailRecord]]:
        for slot, record in self.snapshots.flush() if self.snapshots is not None else ():
            yield self.runs[slot], record

    def _read(self, pending: list[tuple[int, Tensor, Tensor]]) -> Iterator[tuple[int, Record | FailRecord]]:
        """Bring the figures of a few steps from the device in one transfer."""
        if not pending:
            return
        figures = torch.stack([torch.stack(p[1:]) for p in pending]).tolist()  # steps x (loss, accuracy) x M
        for (step, *_), (losses, accuracies) in zip(pending, figures, strict=True):
            told = step % self.log_every == 0 or step in (1, self.total)
            for run, loss, accuracy in zip(self.runs, losses, accuracies, strict=True):
                self.epoch_loss_sums[run] += loss
                if told:
                    yield run, StepRecord(step, loss, accuracy, learning_rate(self.train, step))


def records_of(group: Group) -> Iterator[Record]:
    """Train, yielding the records; reading them late, seldom or never changes no weight.

    Raises: NonFiniteError where a run fails, after its last records.
    """
    for _, record in group.records():
        if isinstance(record, FailRecord):
            raise NonFiniteError(record.message, record.hint)
        yield record


def log_every(train: TrainConfig) -> int:
    """Count the steps from one recorded step to the next; the first and the last are recorded as well."""
    return train.log_every or max(1, math.ceil(train.epochs * train.steps_per_epoch / MAX_RECORDS))


def same_but_seed(first: Config, second: Config) -> bool:
    """Tell whether two configs ask for the same run but for its seed."""
    train = first.train.model_copy(update={"seed": second.train.seed})
    return (first.task, first.model, train) == (second.task, second.model, second.train)
