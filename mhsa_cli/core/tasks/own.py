"""A task of the user's own: a function or class of theirs, held to what every task must do."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Generator, Tensor

from mhsa_cli.config.own_task import short_name
from mhsa_cli.core.tasks.base import IGNORE, Batch, Task, counted_chance, stream_generator
from mhsa_cli.core.user_code import call_own, describe
from mhsa_cli.errors import UsageError

ROWS = 64  # that are drawn to check a task
COUNTED = 2**16  # answers counted for the chance level: a function of the user's may draw row by row
METHODS = ("sample", "held_out", "source", "corrupt", "symbols")
MOST, LONGEST = 4, 24  # baselines, and characters in the name of one: they label lines of a picture
CODE = "own-task"


class OwnTask(Task):
    """A function sample(generator, rows) -> (inputs, targets), or a class with that method and optional others.

    Optional: held_out(generator, rows), source(inputs), corrupt(inputs), symbols(ids), and the attributes chance (loss
    in nats, accuracy), baselines (names to losses in nats), separator, n_symbols, gaps, goal_accuracy, note, summary,
    space; the first two may be methods.
    Raises: UsageError naming the user's line where their code raises or returns something else.
    """

    def __init__(self, name: str, made_by: Callable[..., Any], settings: Mapping[str, Any]) -> None:
        self.file = name
        self.name = short_name(name)
        self.summary = f"your own task, {name}"
        self.vocab_size, self.seq_len = settings["vocab_size"], settings["seq_len"]
        self._ahead: list[list[int]] = []  # a row, query and later key that holds its answer, if there is one
        taken = self._taken(made_by, settings)
        if isinstance(made_by, type):
            self._made: Any = self._ask("its constructor", lambda: made_by(**taken))
            sample = self._method("sample")
        else:
            self._made, sample = made_by, partial(made_by, **taken)
        if sample is None:
            raise self._error("has no method sample", "def sample(self, generator, rows): return inputs, targets")
        self._sample = sample
        self._held_out, self._source, self._corrupt, self._symbols = map(self._method, METHODS[1:])
        self.holds_back = self._held_out is not None
        for size in ("vocab_size", "seq_len"):
            said = self._member(size)
            if isinstance(said, int) and said != settings[size]:
                raise self._error(f"says {size} {said}, task.{size} is {settings[size]}", f"task.{size}={said}")
        for name in ("summary", "note", "space"):
            setattr(self, name, self._said(name, getattr(self, name), str, "a text", lambda _: True))
        in_vocabulary = f"an id, 0..{self.vocab_size - 1}"
        self.separator = self._said("separator", None, int, in_vocabulary, lambda i: 0 <= i < self.vocab_size)
        counts = f"a number of ids, 1..{self.vocab_size}"
        self._n_symbols = self._said("n_symbols", self.vocab_size, int, counts, lambda n: 0 < n <= self.vocab_size)
        share = "a number above 0, at most 1"
        self.goal_accuracy = self._said("goal_accuracy", self.goal_accuracy, (int, float), share, lambda g: 0 < g <= 1)
        distances = "a list of distances, whole numbers above 0"
        self.gaps = tuple(
            self._said("gaps", (), (list, tuple, range), distances, lambda g: all(type(d) is int and d > 0 for d in g))
        )
        self._check()

    def _member(self, name: str) -> Any:
        """Read an attribute of the user's, which may be a property."""
        return self._ask(name, lambda: getattr(self._made, name, None))

    def _method(self, name: str) -> Callable[..., Any] | None:
        """Return a method; None if there is none. Raises: UsageError for anything else of this name."""
        found = self._member(name)
        if found is None or callable(found):
            return found
        raise self._error(f"has {name} {describe(found)}, wanted a method of this name", "rename the attribute")

    def _said(self, name: str, default: Any, kind: Any, wanted: str, fits: Callable[[Any], bool]) -> Any:
        """Read an optional attribute of a kind. Raises: UsageError for another one."""
        found = self._member(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, kind) or not fits(found):
            shown = found if isinstance(found, int | float) else describe(found)
            raise self._error(f"has {name} {shown}, wanted {wanted}")
        return found

    def _taken(self, made_by: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Select the settings that the function or constructor takes. Raises: UsageError for others."""
        try:
            parameters = inspect.signature(made_by).parameters.values()
        except (TypeError, ValueError):
            return dict(settings)
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return dict(settings)
        names = [one.name for one in parameters][0 if isinstance(made_by, type) else 2 :]
        unknown = [key for key in settings if key not in ("vocab_size", "seq_len", *names)]
        if unknown:
            raise self._error(f"has no setting {unknown[0]}", f"its settings: {', '.join(names) or 'none'}")
        return {key: value for key, value in settings.items() if key in names}

    def _error(self, message: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self.file} {message}", hint, CODE)

    def _ask(self, what: str, call: Callable[[], Any]) -> Any:
        """Call the user's code. Raises: UsageError with the line that raised."""
        return call_own(self.file, what, call, CODE)

    @property
    def n_symbols(self) -> int:
        return int(self._n_symbols)

    def sample(self, generator: Generator, rows: int) -> Batch:
        return self._drawn("sample", self._sample, generator, rows)

    def held_out(self, generator: Generator, rows: int) -> Batch:
        if self._held_out is None:
            return self.sample(generator, rows)
        return self._drawn("held_out", self._held_out, generator, rows)

    def _drawn(self, what: str, call: Callable[..., Any], generator: Generator, rows: int) -> Batch:
        """Draw rows with the user's code, and check what it returns. Raises: UsageError."""
        found = self._ask(what, lambda: call(generator, rows))
        if not (isinstance(found, tuple | list) and len(found) == 2):
            raise self._error(f"{what} returned {describe(found)}, wanted two tensors", "return inputs, targets")
        self._check_ids(f"{what}: inputs", found[0], rows)
        self._check_ids(f"{what}: targets", found[1], rows, may_ignore=True)
        return Batch(found[0], found[1])

    def _check_ids(self, what: str, ids: Any, rows: int, *, may_ignore: bool = False) -> None:
        """Refuse what is no tensor of ids of the task's shape. Raises: UsageError."""
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or tuple(ids.shape) != (rows, self.seq_len):
            wanted = f"wanted an int64 tensor ({rows}, {self.seq_len}): rows, task.seq_len"
            other = isinstance(ids, Tensor) and ids.dim() == 2 and ids.size(1) != self.seq_len
            hint = f"if every row has {ids.size(1)} tokens: task.seq_len={ids.size(1)}" if other else None
            raise self._error(f"{what} is {describe(ids)}, {wanted}", hint)
        if ids.device.type != "cpu":
            raise self._error(f"{what} is on {ids.device}, wanted it on the CPU", "rows are moved where the model is")
        odd = ids[((ids < 0) | (ids >= self.vocab_size)) & ~(may_ignore & (ids == IGNORE))]
        if len(odd):
            highest = int(odd.max())
            hint = f"task.vocab_size={highest + 1}" if highest >= 0 else f"{IGNORE} where nothing is asked"
            raise self._error(f"{what} has the id {int(odd[0])}, wanted 0..{self.vocab_size - 1}", hint)

    def _check(self) -> None:
        """Draw a few rows once before any training. Raises: UsageError."""
        draws = [("sample", self.sample)] + ([("held_out", self.held_out)] if self.holds_back else [])
        for what, draw in draws:
            one, again, other = (draw(stream_generator(0, "check", i), ROWS) for i in (0, 0, 1))
            if not (one.inputs.equal(again.inputs) and one.targets.equal(again.targets)):
                hint = "draw everything from it: torch.randint(..., generator=generator)"
                raise self._error(f"{what} draws other rows from a generator in the same state", hint)
            if what == "sample" and len(torch.cat([one.inputs, other.inputs]).unique(dim=0)) == 1:
                raise self._error("has a single row: there is nothing to learn from its inputs")
            if what == "sample" and not self.holds_back and one.inputs.equal(other.inputs):
                hint = "draw from it; or, of given rows, hold some back: held_out(generator, rows)"
                raise self._error(f"{what} does not use its generator: all batches have the same rows", hint)
            if not bool((one.targets != IGNORE).any()):
                raise self._error(f"{what}: no target is asked in {ROWS} rows: all are {IGNORE}")
        self._check_source(one)
        if self._corrupt is not None and self.corrupt(one, stream_generator(0, "check", 2)).inputs.equal(one.inputs):
            raise self._error("corrupt changes no row", "return inputs whose answers differ")
        self.symbols(range(self.vocab_size))

    def _check_source(self, batch: Batch) -> None:
        keys = self.source(batch.inputs)
        if keys is None:
            return
        shuffled = batch.inputs[:, torch.randperm(self.seq_len, generator=stream_generator(0, "check", 3))]
        shape = (len(batch.inputs), self.seq_len, self.seq_len)
        for found, rows in ((keys, "its own rows"), (self.source(shuffled), "rows of shuffled tokens")):
            if not isinstance(found, Tensor) or found.dtype != torch.bool or tuple(found.shape) != shape:
                wanted = f"a boolean tensor {shape}: rows, queries, keys"
                raise self._error(f"source returned {describe(found)} for {rows}, wanted {wanted}")
        self._ahead = keys.triu(1).nonzero()[:1].tolist()
        held = batch.inputs.unsqueeze(1) == batch.targets.unsqueeze(2)  # (B, T, T)
        asked = (batch.targets != IGNORE).unsqueeze(2)
        if bool((keys & asked & ~held).any()):
            row, query, key = (keys & asked & ~held).nonzero()[0].tolist()
            answer, token = int(batch.targets[row, query]), int(batch.inputs[row, key])
            message = f"source: query {query} of row {row} has the answer {answer}; at its key {key} stands {token}"
            raise self._error(message, "True only at the keys that hold the answer")

    def check_causal(self) -> None:
        """Refuse a source that has later keys, for a causal model. Raises: UsageError."""
        for row, query, key in self._ahead:
            message = f"source: query {query} of row {row} has its answer at {key}, which comes after it"
            hint = "a query attends to itself and to what is before it: .tril(); or train with model.causal=false"
            raise self._error(message, hint)

    def source(self, inputs: Tensor) -> Tensor | None:
        call = self._source
        return None if call is None else self._ask("source", lambda: call(inputs))

    def corrupt(self, batch: Batch, generator: Generator) -> Batch:
        call = self._corrupt
        if call is None:
            return super().corrupt(batch, generator)
        inputs = self._ask("corrupt", lambda: call(batch.inputs.clone()))
        self._check_ids("corrupt: its result", inputs, len(batch.inputs))
        return Batch(inputs, batch.targets)

    def symbols(self, ids: Sequence[int]) -> list[str]:
        call = self._symbols
        if call is None:
            return super().symbols(ids)
        texts = self._ask("symbols", lambda: call(list(ids)))
        if not isinstance(texts, list | tuple) or len(texts) != len(ids):
            raise self._error(f"symbols returned {describe(texts)}, wanted a list of {len(ids)} texts, one an id")
        return [str(text) for text in texts]

    @cached_property
    def baselines(self) -> Mapping[str, float]:
        said = self._member("baselines")
        said = self._ask("baselines", said) if callable(said) else {} if said is None else said
        if not isinstance(said, Mapping):
            raise self._error(
                f"has baselines {describe(said)}, wanted names and losses", "baselines = {'unigram': 1.8}"
            )
        if len(said) > MOST:
            raise self._error(f"has {len(said)} baselines, wanted {MOST} or fewer")
        for name, loss in said.items():
            if not isinstance(name, str) or not 0 < len(name) <= LONGEST:
                message = f"baselines: found the name {ascii(name)[:60]}, wanted a text of 1 to {LONGEST} characters"
                raise self._error(message)
            number = isinstance(loss, int | float) and not isinstance(loss, bool)
            if not number or not math.isfinite(loss) or loss < 0:
                found = loss if number else describe(loss)
                raise self._error(f"baselines: {name} is {found}, wanted a loss in nats: a finite number, 0 or more")
        return {name: float(loss) for name, loss in said.items()}

    @cached_property
    def _chance(self) -> tuple[float, float]:
        said = self._member("chance")
        said = self._ask("chance", said) if callable(said) else said
        if said is None:
            return counted_chance(self, COUNTED)
        pair = said if isinstance(said, tuple | list) and len(said) == 2 else (None, None)
        if not all(isinstance(one, int | float) and math.isfinite(one) for one in pair):
            raise self._error(f"chance is {describe(said)}, wanted two numbers", "chance = (loss in nats, accuracy)")
        return float(said[0]), float(said[1])
