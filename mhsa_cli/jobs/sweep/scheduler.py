"""Train the trials of a sweep in chunks, as stacks; chunks that fail are split and tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from mhsa_cli.config.schema import Config
from mhsa_cli.jobs.own_source import own_source
from mhsa_cli.jobs.signals import StopSignal
from mhsa_cli.jobs.sweep.capacity import stack_size
from mhsa_cli.jobs.sweep.chunk import Chunk, Send, give_up
from mhsa_cli.jobs.sweep.local import Engine, Fault, InProcessEngine, ProcessEngine, can_fork
from mhsa_cli.jobs.sweep.plan import EngineOptions, Trial, name_trials
from mhsa_cli.jobs.sweep.ray import RayEngine
from mhsa_cli.records.sweep import ChunkPlan, ChunkProgress
from mhsa_cli.runs.sweep_dir import SweepDir


class Watcher(AbstractContextManager[object], Protocol):
    """A progress display, inside `with`."""

    def receive(self, message: ChunkProgress | str) -> None:
        """Take a message from a chunk."""

    def begin(self, plan: ChunkPlan) -> None:
        """Add a chunk."""

    def end(self, chunk: int, done: int) -> None:
        """Remove a chunk, of which `done` trials have a result."""

    def say(self, text: str) -> None:
        """Show a message."""


def _chunks(
    trials: Sequence[Trial],
    plan: Mapping[str, Any],
    engine: Engine,
    steps: Mapping[str, int],
    blocks: Mapping[str, str],
    scores: Sequence[str],
) -> list[Chunk]:
    """Group trials that differ only in their seeds into chunks: up to the largest stack, one or more for each slot.

    `steps` are those of their newest checkpoints: trials of a chunk resume from the same one. `blocks` maps custom
    attention and the user's own tasks to the name to import; `scores` are the names of their own scores.
    """
    groups: dict[tuple[Config, int], list[Trial]] = {}
    for trial in trials:
        train = trial.config.train.model_copy(update={"seed": 0})
        without_seed = trial.config.model_copy(update={"train": train})
        groups.setdefault((without_seed, steps[trial.name]), []).append(trial)
    chunks: list[Chunk] = []
    sent = tuple(map(own_source, scores))
    for group in groups.values():
        config = group[0].config
        size = stack_size(config, len(group), engine.slots, engine.memory)
        attention, texts = blocks.get(config.model.attention), plan.get("texts") or {}
        task = own_source(blocks[config.task.name]) if config.task.name in blocks else None
        for i in range(0, len(group), size):
            part = tuple(group[i : i + size])
            chunks.append(
                Chunk(
                    len(chunks),
                    part,
                    plan["goal"],
                    attention=attention,
                    texts=texts,
                    task=task,
                    scores=sent,
                    kept=plan.get("scores") or {},
                )
            )
    return chunks


def train_missing(
    sweep: SweepDir,
    plan: Mapping[str, Any],
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    options: EngineOptions,
    stop: StopSignal,
    show: Callable[..., Watcher],
    blocks: Mapping[str, str],
    scores: Sequence[str] = (),
) -> int:
    """Train the trials without a result; returns the number of chunks with an internal error.

    `show` makes the progress display from the numbers of trials, finished and started trials, steps left and slots.
    """
    done = len(trials) - len(missing)
    steps = {trial.name: max(sweep.steps(trial.name), default=0) for trial in missing}
    started = sum(step > 0 for step in steps.values())
    # The engine sends messages to the view, which is made later, from the chunks.
    engine = _engine(sweep, options, missing, stop, lambda message: view.receive(message))
    chunks = _chunks(missing, plan, engine, steps, blocks, scores)
    left = sum(trial.config.total_steps - steps[trial.name] for trial in missing)
    cells = [" ".join(f"{key.rpartition('.')[2]}={v}" for key, v in c["overrides"].items()) for c in plan["cells"]]
    view = show(trials=len(trials), done=done, started=started, work=left, slots=min(engine.slots, len(chunks)))
    scheduler = Scheduler(sweep, engine, chunks, cells, view)
    try:
        with view:
            scheduler.run(stop)
    finally:
        engine.close()
    return scheduler.faults


def _engine(
    sweep: SweepDir, options: EngineOptions, missing: Sequence[Trial], stop: Callable[[], bool], send: Send
) -> Engine:
    if options.engine == "ray":
        return RayEngine(sweep, options.address, options.jobs and min(options.jobs, len(missing)), stop, send)
    slots = min(options.processes, len(missing))
    if slots == 1:
        return InProcessEngine(sweep.path, stop, send)
    return ProcessEngine(sweep, slots, stop, send, fork=can_fork(trial.config.train for trial in missing))


class Scheduler:
    """Runs the chunks of a sweep on an engine.

    A chunk that runs out of memory, or whose process is killed, is split in halves; a single trial is tried once more
    alone and then fails. Any other fault ends its own chunk only.
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
        """Train all chunks; after a stop, start no more. Raises: MhsaError that would end every chunk."""
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
                    self._handle(fault, replace(chunk, trials=left), stop())

    def _start(self, chunk: Chunk) -> None:
        trial = chunk.trials[0]
        first, total = max(self.sweep.steps(trial.name), default=0), trial.config.total_steps
        self.watcher.begin(ChunkPlan(chunk.number, self.cells[trial.cell], len(chunk.trials), total, first))
        self.engine.start(chunk)
        self._running += 1

    def _handle(self, fault: Fault, chunk: Chunk, stopping: bool) -> None:
        """Split, retry or give up the unfinished trials of a chunk."""
        if fault.kind == "common":
            assert fault.error is not None
            raise fault.error
        if not chunk.trials or (stopping and fault.kind in ("killed", "crashed")):
            return
        size, names = len(chunk.trials), name_trials(chunk.trials)
        if fault.kind == "internal":
            self.faults += 1
            file = self.sweep.note_error(f"{names}\n{fault.trace}")
            self.watcher.say(f"internal error in {names}: {fault.message}; details in {file}")
        elif size > 1:
            self.watcher.say(f"{names}: {fault.message}; retrying in halves")
            halves = chunk.trials[: size // 2], chunk.trials[size // 2 :]
            parts = (replace(chunk, number=next(self._numbers), trials=half) for half in reversed(halves))
            self._waiting.extendleft(parts)
        elif not chunk.last_try:
            self.watcher.say(f"{names}: {fault.message}; retrying alone at the end")
            self._alone.append(replace(chunk, number=next(self._numbers), last_try=True))
        else:
            self.watcher.say(f"{names}: {fault.message}; failed")
            message = f"failed twice, the second time alone: {fault.message}"
            give_up(self.sweep, chunk.trials[0], message, fault.kind)
