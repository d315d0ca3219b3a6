"""The work of a sweep: its trials in chunks that train as stacks, and what becomes of one that does not end well."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.schema import Config
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.sweep.capacity import stack_that_fits
from mhsa_cli.jobs.sweep.chunk import Chunk, Tell, give_up
from mhsa_cli.jobs.sweep.local import Engine, Fault, InProcessEngine, ProcessEngine
from mhsa_cli.jobs.sweep.plan import EngineOptions, Trial, name_trials
from mhsa_cli.jobs.sweep.ray import RayEngine
from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.runs.sweep_dir import SweepDir
from mhsa_cli.text import plural

MAX_STACK = 64  # models that train together: more gains nothing and holds more memory
STACK_NUMBERS = 2**27  # logits of all their evaluation rows, 512 MB with what is made of them


class Watcher(AbstractContextManager[object], Protocol):
    """Whoever shows how the work goes on, inside `with`."""

    def hear(self, message: ChunkProgress | str) -> None:
        """A chunk tells how far it is."""

    def begin(self, plan: ChunkPlan) -> None:
        """A chunk begins."""

    def end(self, chunk: int, done: int) -> None:
        """A chunk ended, and so many of its trials have a result."""

    def say(self, text: str) -> None:
        """Something is to be told."""


def _chunks(
    trials: Sequence[Trial],
    plan: Mapping[str, Any],
    engine: Engine,
    steps: Mapping[str, int],
    blocks: Mapping[str, str],
) -> list[Chunk]:
    """Put trials that differ in their seeds alone together, as many as train well as one stack, enough for the engine.

    `steps` are those of their newest checkpoints: only trials of one step can go on together. `blocks` says by which
    name each block that is not ours is imported.
    """
    groups: dict[tuple[Config, int], list[Trial]] = {}
    for trial in trials:
        train = trial.config.train.model_copy(update={"seed": 0})
        alike = trial.config.model_copy(update={"train": train})
        groups.setdefault((alike, steps[trial.name]), []).append(trial)
    found: list[Chunk] = []
    for group in groups.values():
        config = group[0].config
        size = min(largest_stack(config, engine.memory), max(1, -(-len(group) // engine.slots)))
        block, texts = blocks.get(config.model.attention), plan.get("texts") or {}
        for i in range(0, len(group), size):
            part = tuple(group[i : i + size])
            found.append(Chunk(len(found), part, plan["goal"], block=block, texts=texts))
    return found


def largest_stack(config: Config, memory: int | None = None) -> int:
    """Count the models of a config that train well together in so many bytes. Raises: UsageError if not one fits."""
    if is_file(config.model.attention):  # somebody's block is called model by model
        stack_that_fits(config, memory)
        return 1
    if config.train.threads > 1:  # how threads share a product depends on the stack, and with it the last bits
        return 1
    task, rows = config.task, min(256, config.train.eval_sequences)
    size = getattr(task, "vocab_size", 256)
    well = max(1, min(MAX_STACK, STACK_NUMBERS // (max(rows, config.train.batch_size) * task.seq_len * size)))
    fits = stack_that_fits(config, memory)
    return well if fits is None else min(well, fits)


def train_missing(
    sweep: SweepDir,
    plan: Mapping[str, Any],
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    options: EngineOptions,
    stop: StopSignal,
    show: Callable[..., Watcher],
    blocks: Mapping[str, str],
) -> int:
    """Train the trials that have no result yet; returns how many chunks met an internal error.

    `show` makes what shows how far it is, of the numbers of trials, of those done, of steps left and of chunks at once.
    """
    done = len(trials) - len(missing)
    steps = {trial.name: max(sweep.steps(trial.name), default=0) for trial in missing}
    begun = sum(step > 0 for step in steps.values())
    more = [f"{done} done already"] if done else []
    more += [f"{begun} begun"] if begun else []
    tell(", ".join([plural(len(trials), "trial"), *more]))
    # What chunks say goes to the picture, which comes last, when they are known.
    engine = _engine(sweep, options, len(missing), stop, lambda message: view.hear(message))
    chunks = _chunks(missing, plan, engine, steps, blocks)
    left = sum(trial.config.total_steps - steps[trial.name] for trial in missing)
    cells = [" ".join(f"{key.rpartition('.')[2]}={v}" for key, v in c["overrides"].items()) for c in plan["cells"]]
    view = show(trials=len(trials), done=done, work=left, slots=min(engine.slots, len(chunks)))
    scheduler = Scheduler(sweep, engine, chunks, cells, view)
    try:
        with view:
            scheduler.run(stop)
    finally:
        engine.close()
    return scheduler.faults


def _engine(sweep: SweepDir, options: EngineOptions, most: int, stop: Callable[[], bool], tell: Tell) -> Engine:
    """Make what trains, `most` chunks at the same time if not fewer were asked for."""
    if options.engine == "ray":
        return RayEngine(sweep, options.address, options.jobs and min(options.jobs, most), stop, tell)
    slots = min(options.processes, most)
    return InProcessEngine(sweep.path, stop, tell) if slots == 1 else ProcessEngine(sweep.path, slots, stop, tell)


class Scheduler:
    """All chunks of a sweep on their way through an engine.

    A chunk that finds no memory, or whose process is killed, is tried again in halves; a single trial is tried once
    more with nothing beside it and then has failed. Any other fault ends its own chunk, and the others go on.
    """

    def __init__(
        self, sweep: SweepDir, engine: Engine, chunks: Sequence[Chunk], cells: Sequence[str], watcher: Watcher
    ) -> None:
        self.sweep, self.engine, self.cells, self.watcher = sweep, engine, cells, watcher
        self.faults = 0
        self._waiting, self._alone = deque(chunks), list[Chunk]()
        self._running = 0
        self._numbers = count(len(chunks))

    def run(self, stop: Callable[[], bool]) -> None:
        """Train all; once a stop is wanted nothing new begins. Raises: MhsaError that the others would meet as well."""
        while True:
            while self._waiting and self._running < self.engine.slots and not stop():
                self._start(self._waiting.popleft())
            if not self._running:
                if stop() or not self._alone:
                    return
                self._start(self._alone.pop())
            for chunk, fault in self.engine.wait():
                self._running -= 1
                left = tuple(trial for trial in chunk.trials if not self.sweep.is_done(trial.name))
                self.watcher.end(chunk.number, len(chunk.trials) - len(left))
                if fault is not None:
                    self._meet(fault, replace(chunk, trials=left), stop())

    def _start(self, chunk: Chunk) -> None:
        trial = chunk.trials[0]
        first, total = max(self.sweep.steps(trial.name), default=0), trial.config.total_steps
        self.watcher.begin(ChunkPlan(chunk.number, self.cells[trial.cell], len(chunk.trials), total, first))
        self.engine.start(chunk)
        self._running += 1

    def _meet(self, fault: Fault, chunk: Chunk, stopping: bool) -> None:
        """Decide what a fault means for what is left of a chunk."""
        if fault.kind == "common":
            assert fault.error is not None
            raise fault.error
        if not chunk.trials or (stopping and fault.kind in ("killed", "crashed")):
            return
        size, who = len(chunk.trials), name_trials(chunk.trials)
        if fault.kind == "internal":
            self.faults += 1
            where = self.sweep.note_error(f"{who}\n{fault.trace}")
            self.watcher.say(f"internal error in {who}: {fault.message}; the details are in {where}")
        elif size > 1:
            self.watcher.say(f"{who}: {fault.message}; they are trained in halves now")
            halves = chunk.trials[: size // 2], chunk.trials[size // 2 :]
            parts = (replace(chunk, number=next(self._numbers), trials=half) for half in reversed(halves))
            self._waiting.extendleft(parts)
        elif not chunk.last_try:
            self.watcher.say(f"{who}: {fault.message}; it is tried once more, alone")
            self._alone.append(replace(chunk, number=next(self._numbers), last_try=True))
        else:
            self.watcher.say(f"{who}: {fault.message}; it is given up")
            message = f"twice without success, the second time alone: {fault.message}"
            give_up(self.sweep, chunk.trials[0], message, fault.kind)
