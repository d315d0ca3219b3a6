"""The grid of a sweep: lists of values times seeds, expanded into valid configs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.config import overrides as changes
from mhsa_cli.config.fields import all_keys
from mhsa_cli.config.load import check
from mhsa_cli.config.overrides import SEED_LIST_REFUSED, bracketed_list_problem, split_values
from mhsa_cli.config.problems import SHOWN, ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.reader import read_file
from mhsa_cli.config.schema import Config
from mhsa_cli.config.yaml_events import Document
from mhsa_cli.errors import UsageError, unwanted

Values = list[tuple[str, changes.Override]]  # of one argument, each as typed and as read

MAX_TRIALS = 100_000
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of values: dotted keys with values as typed, and a config for each seed."""

    overrides: Mapping[str, str]
    configs: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The valid cells, the last key varying fastest, and the invalid ones with the reason."""

    cells: tuple[Cell, ...]
    invalid: tuple[tuple[Mapping[str, str], str], ...] = ()

    @property
    def trials(self) -> int:
        """The number of runs: cells times seeds."""
        return sum(len(cell.configs) for cell in self.cells)

    @property
    def seeds(self) -> int:
        """The number of runs of each cell."""
        return len(self.cells[0].configs)


def expand(config_path: str | None, overrides: Sequence[str], seeds: int, *, skip_invalid: bool = False) -> Grid:
    """Expand `KEY=V1,V2,...` overrides times `seeds` seeds, counted up from the config's `train.seed`.

    A comma inside [], {} or quotes belongs to its value. The size is checked before anything is expanded.
    Raises: UsageError for a grid that is too large or has invalid cells (with `skip_invalid`, only invalid ones);
    ConfigError for problems of the file or of an override.
    """
    if seeds < 1:
        raise unwanted("--seeds", seeds, "1 or more", "a comparison needs at least 6 seeds")
    texts = [(text, split_values(text.partition("=")[2])) for text in overrides]
    _count([len(items) for _, items in texts], seeds)
    data, axes = read_file(config_path), read_axes(texts)
    _refuse_unknown(data, axes)
    cells: list[Cell] = []
    invalid: list[tuple[Mapping[str, str], str]] = []
    problems: list[Problem] = []
    for chosen in itertools.product(*axes.values()):
        named = {key: text for key, (text, _) in zip(axes, chosen, strict=True) if len(axes[key]) > 1}
        try:
            config = _config(data, [override for _, override in chosen])
        except ConfigError as error:
            invalid.append((named, _in_a_line(error)))
            # The first problems are enough: they are shown if every cell is invalid.
            problems += error.problems if len(problems) <= SHOWN else ()
        else:
            cells.append(Cell(named, _seeded(config, seeds)))
    if not cells and not (skip_invalid and len(invalid) > 1):
        raise ConfigError(problems)
    if not cells:
        raise _refusal(invalid, len(invalid), "change the values: --skip-invalid would leave nothing to train")
    if invalid and not skip_invalid:
        way = "change the values, or add --skip-invalid to train the others"
        raise _refusal(invalid, len(cells) + len(invalid), way)
    return Grid(tuple(cells), tuple(invalid))


def _count(sizes: Sequence[int], seeds: int) -> None:
    trials = math.prod(sizes) * seeds
    if trials > MAX_TRIALS:
        lists = " x ".join(f"{size:,}" for size in sizes if size > 1)
        values = f"{lists} values x {seeds:,} seeds" if lists else f"{seeds:,} seeds"
        message = f"the grid has {trials:,} trials ({values}), wanted at most {MAX_TRIALS:,}"
        raise UsageError(message, "use fewer values, or lower --seeds")


def read_axes(texts: Sequence[tuple[str, list[tuple[int, str]]]]) -> dict[str, Values]:
    """Read the arguments by their dotted keys. Raises: ConfigError with all problems."""
    axes: dict[str, Values] = {}
    first: dict[str, str] = {}
    problems: list[Problem] = []
    for text, items in texts:
        try:
            key, values, found = _axis(text, items)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += found
        if key in axes:
            mark = _mark(text, 0, len(text.partition("=")[0]))
            before = first[key]
            same = before.partition("=")[2].strip() == text.partition("=")[2].strip()
            way = "keep one of them" if same else "write all its values in one list"
            problems.append(changes.set_twice(mark, key, before, way))
        axes[key] = values
        first.setdefault(key, text)
    if problems:
        raise ConfigError(problems)
    return axes


def _axis(text: str, items: list[tuple[int, str]]) -> tuple[str, Values, list[Problem]]:
    """Read an argument: its dotted key, values and problems."""
    key, equals, whole = text.partition("=")
    if equals and (refusal := bracketed_list_problem(key.strip(), whole)):
        return key, [], [_mark(text, len(key) + 1, len(whole)).problem("list", *refusal)]
    first = changes.read(f"{key}={items[0][1]}" if equals and len(items) > 1 else text)
    dotted = ".".join(first.path)
    if len(items) == 1:
        return dotted, [(whole.strip(), first)], list(first.value.problems)
    if dotted == "train.seed":
        return dotted, [], [_mark(text, 0, len(key)).problem("list", *SEED_LIST_REFUSED)]
    values, problems, gap = [], [], False
    seen: dict[Any, str] = {}
    for at, item in items:
        mark = _mark(text, len(key) + 1 + at, max(1, len(item)))
        if not item:
            if not gap:  # reported once
                message = "found a comma without a value beside it"
                problems.append(mark.problem("list", message, "remove it, or write null"))
            gap = True
            continue
        try:
            override = changes.read(f"{key}={item}")
        except ConfigError as error:
            problems += error.problems
            continue
        problems += override.value.problems
        same = _hashable(override.value.data)
        if same in seen and not override.value.problems:
            twin = seen[same]
            message = f"found `{clip(item)}` twice" if twin == item else f"`{clip(item)}` is the same as `{clip(twin)}`"
            problems.append(mark.problem("value-twice", message, "remove one: each value is trained once per seed"))
        seen.setdefault(same, item)
        values.append((item, override))
    return dotted, values, problems


def _mark(text: str, at: int, span: int) -> Mark:
    return Mark(Source(text, [text], override=True), 1, at + 1, max(1, span))


def _hashable(value: Any) -> Any:
    """Return a hashable key of a value, equal for 1 and 1.0, but not for 1 and true."""
    if isinstance(value, list):
        return ("list", *map(_hashable, value))
    if isinstance(value, dict):
        return ("dict", *((key, _hashable(item)) for key, item in sorted(value.items())))
    return (isinstance(value, bool), value)


def _refuse_unknown(document: Document, axes: Mapping[str, Values]) -> None:
    """Report unknown keys once, not for each of their values. Raises: ConfigError."""
    known, task = set(all_keys()), [axes["task.name"][0][1]] if "task.name" in axes else []
    problems: list[Problem] = []
    for key, values in axes.items():
        if key not in known:
            override = values[0][1]
            try:
                _config(document, [*task, override])
            except ConfigError as error:
                problems += [problem for problem in error.problems if problem.file == override.key.source.name]
    if problems:
        raise ConfigError(problems)


def _config(document: Document, overrides: Sequence[changes.Override]) -> Config:
    """Check a copy of the document with the overrides applied: the file is read only once."""
    data = {key: dict(value) if isinstance(value, dict) else value for key, value in document.data.items()}
    marks, keys = dict(document.marks), dict(document.keys)
    copy = Document(document.source, data, marks, keys, list(document.problems), set(document.bad))
    for override in overrides:
        changes.put(copy, override)
    return check(copy)


def _seeded(config: Config, seeds: int) -> tuple[Config, ...]:
    first = config.train.seed
    if first + seeds - 1 > MAX_SEED:
        raise UsageError(f"`train.seed` ({first}) + --seeds ({seeds:,}) passes the largest seed, {MAX_SEED}")
    trains = (config.train.model_copy(update={"seed": first + number}) for number in range(seeds))
    return tuple(config.model_copy(update={"train": train}) for train in trains)


def _in_a_line(error: ConfigError) -> str:
    """Write the problems of a cell in one line, without places."""
    hints = ["; ".join((problem.hint or "").splitlines()) for problem in error.problems]
    pairs = zip(error.problems, hints, strict=True)
    return "; ".join(f"{problem.message} ({hint})" if hint else problem.message for problem, hint in pairs)


def _refusal(invalid: Sequence[tuple[Mapping[str, str], str]], total: int, hint: str) -> UsageError:
    """List invalid cells under their reasons."""
    order = {message: number for number, message in enumerate(dict.fromkeys(message for _, message in invalid))}
    lines = [f"{len(invalid):,} of the grid's {total:,} combinations cannot be trained"]
    last = ""
    for overrides, message in sorted(invalid, key=lambda cell: order[cell[1]])[:SHOWN]:
        named = " ".join(f"{key}={clip(text)}" for key, text in overrides.items())
        lines += [f"  {message}"] * (message != last) + [f"    {named}"]
        last = message
    if len(invalid) > SHOWN:
        lines.append(f"  ... and {len(invalid) - SHOWN:,} more cells")
    return UsageError("\n".join(lines), hint)
