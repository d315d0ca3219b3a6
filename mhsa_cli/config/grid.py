"""The grid of a sweep: axes of values times seeds, expanded into valid configs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.config import overrides as changes
from mhsa_cli.config.axes import Axis, read_axes, read_section
from mhsa_cli.config.fields import SWEEP, all_keys
from mhsa_cli.config.load import check
from mhsa_cli.config.overrides import split_values
from mhsa_cli.config.problems import SHOWN, ConfigError, Problem, clip
from mhsa_cli.config.reader import read_file
from mhsa_cli.config.schema import Config
from mhsa_cli.config.yaml_events import Document
from mhsa_cli.errors import UsageError, unwanted

MAX_TRIALS = 100_000
MAX_SEED = 2**63 - 1
SEEDS = 8  # of each cell, unless it is said


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of values: dotted keys with values as typed, and a config for each seed."""

    overrides: Mapping[str, str]
    configs: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """The valid cells, the last key varying fastest, and the invalid ones with the reason.

    `base` is the config without what varies, `sweep` the rest: a section that gives this grid in a file with `base`.
    """

    cells: tuple[Cell, ...]
    base: Document
    sweep: Mapping[str, Any]
    invalid: tuple[tuple[Mapping[str, str], str], ...] = ()

    @property
    def trials(self) -> int:
        """The number of runs: cells times seeds."""
        return sum(len(cell.configs) for cell in self.cells)

    @property
    def seeds(self) -> int:
        """The number of runs of each cell."""
        return len(self.cells[0].configs)


def expand(
    config_path: str | None, overrides: Sequence[str], seeds: int | None = None, *, skip_invalid: bool = False
) -> Grid:
    """Expand the axes of a file's `sweep` section and of `KEY=V1,V2,...` overrides, times `seeds` seeds.

    An override replaces the file's axis; `seeds` None means the file's, or 8. They are counted up from `train.seed`.
    A comma inside [], {} or quotes belongs to its value. The size is checked before anything is expanded.
    Raises: UsageError for a grid that is too large or has invalid cells (with `skip_invalid`, only invalid ones);
    ConfigError for problems of the file or of an override.
    """
    if seeds is not None and seeds < 1:
        raise unwanted("--seeds", seeds, "1 or more", "a comparison needs at least 6 seeds")
    texts = [(text, split_values(text.partition("=")[2])) for text in overrides]
    _count([len(items) for _, items in texts], seeds or 1)
    document = read_file(config_path)
    section, of_file, problems = read_section(document)
    axes, found = read_axes(texts)
    if problems or found:
        raise ConfigError([*problems, *found])
    axes = {**section, **axes}
    seeds = seeds or of_file or SEEDS
    _count([len(axis.values) for axis in axes.values()], seeds)
    _refuse_unknown(document, axes)
    cells: list[Cell] = []
    invalid: list[tuple[Mapping[str, str], str]] = []
    problems = []
    varied = {key: axis for key, axis in axes.items() if len(axis.values) > 1}
    base = _with(document, [axis.values[0][1] for key, axis in axes.items() if key not in varied])
    for chosen in itertools.product(*(axis.values for axis in axes.values())):
        named = {key: text for key, (text, _) in zip(axes, chosen, strict=True) if key in varied}
        try:
            config = check(_with(document, [override for _, override in chosen]))
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
    sweep = {**{key: axis.written for key, axis in varied.items()}, "seeds": seeds}
    return Grid(tuple(cells), base, sweep, tuple(invalid))


def sweep_of(config_path: str, overrides: Sequence[str]) -> Grid | None:
    """Expand a file's `sweep` section; None if it has none. Raises: as `expand`."""
    return expand(config_path, overrides) if SWEEP in read_file(config_path).data else None


def _count(sizes: Sequence[int], seeds: int) -> None:
    trials = math.prod(sizes) * seeds
    if trials > MAX_TRIALS:
        lists = " x ".join(f"{size:,}" for size in sizes if size > 1)
        values = f"{lists} values x {seeds:,} seeds" if lists else f"{seeds:,} seeds"
        message = f"the grid has {trials:,} trials ({values}), wanted at most {MAX_TRIALS:,}"
        raise UsageError(message, "use fewer values, or lower --seeds")


def _refuse_unknown(document: Document, axes: Mapping[str, Axis]) -> None:
    """Report unknown keys once, not for each of their values. Raises: ConfigError."""
    known, task = set(all_keys()), [axes["task.name"].values[0][1]] if "task.name" in axes else []
    problems: list[Problem] = []
    for key, axis in axes.items():
        if key not in known:
            override = axis.values[0][1]
            source, line = override.key.source, override.key.line
            try:
                check(_with(document, [*task, override]))
            except ConfigError as error:
                problems += [found for found in error.problems if (found.file, found.line) == (source.name, line)]
    if problems:
        raise ConfigError(problems)


def _with(document: Document, overrides: Sequence[changes.Override]) -> Document:
    """Copy the document with the overrides applied: the file is read only once."""
    data = {key: dict(value) if isinstance(value, dict) else value for key, value in document.data.items()}
    marks, keys = dict(document.marks), dict(document.keys)
    copy = Document(document.source, data, marks, keys, list(document.problems), set(document.bad))
    for override in overrides:
        changes.put(copy, override)
    return copy


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
