"""The axes of a sweep: `KEY=V1,V2,...` and `KEY=FROM..TO:STEPS` as typed, and the section `sweep` of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mhsa_cli.config import overrides as changes
from mhsa_cli.config.fields import SWEEP, all_keys, describe, is_text, number_kind
from mhsa_cli.config.overrides import SEED_LIST_REFUSED, bracketed_list_problem, resolve_key
from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.ranges import FORM, KEYS, SCALES, Range, RangeError, is_range, parse_range, values
from mhsa_cli.config.scalars import resolve, write
from mhsa_cli.config.spelling import did_you_mean
from mhsa_cli.config.yaml_events import Document, Path

SEEDS = "seeds"
_WANTED = "a list of values, or a range {from: 1e-3, to: 1e-2, steps: 5, scale: log}"


@dataclass(frozen=True, slots=True)
class Axis:
    """The values of one setting, each as typed and as read, and how a file has them."""

    values: Sequence[tuple[str, changes.Override]]
    written: Range | list[Any]


Axes = dict[str, Axis]


def read_axes(texts: Sequence[tuple[str, list[tuple[int, str]]]]) -> tuple[Axes, list[Problem]]:
    """Read arguments, each with its items split at commas, by their dotted keys; also return all problems."""
    axes: Axes = {}
    first: dict[str, str] = {}
    problems: list[Problem] = []
    for text, items in texts:
        try:
            key, axis, found = _argument(text, items)
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
        axes[key] = axis
        first.setdefault(key, text)
    return axes, problems


def _argument(text: str, items: list[tuple[int, str]]) -> tuple[str, Axis, list[Problem]]:
    """Read an argument: its dotted key, axis and problems. Raises: ConfigError."""
    key, equals, whole = text.partition("=")
    if equals and (span := _range_of(key, whole, _mark(text, len(key) + 1, len(whole)))):
        return span
    if equals and (refusal := bracketed_list_problem(key.strip(), whole)):
        return key, Axis([], []), [_mark(text, len(key) + 1, len(whole)).problem("list", *refusal)]
    first = changes.read(f"{key}={items[0][1]}" if equals and len(items) > 1 else text)
    dotted = ".".join(first.path)
    if len(items) == 1:
        return dotted, Axis([(whole.strip(), first)], []), list(first.value.problems)
    if dotted == "train.seed":
        return dotted, Axis([], []), [_mark(text, 0, len(key)).problem("list", *SEED_LIST_REFUSED)]
    read, problems, gap = [], [], False
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
        read.append((item, override, mark))
    axis, twice = _different(read)
    return dotted, axis, [*problems, *twice]


def _range_of(key: str, text: str, mark: Mark) -> tuple[str, Axis, list[Problem]] | None:
    """Read an argument whose value is a range, or means to be one; None if not. Raises: ConfigError."""
    if ".." not in text or not key.strip():
        return None
    path = changes.read(f"{key}=0").path
    dotted = ".".join(path)
    kind = number_kind(dotted)
    if is_text(path) or not (kind or is_range(text)):  # no number has two dots
        return None
    if dotted == "train.seed":
        return dotted, Axis([], []), [mark.problem("list", *SEED_LIST_REFUSED)]
    key_mark = replace(mark, col=1, span=max(1, len(key)))
    if "," in text:
        return dotted, Axis([], []), [mark.problem("range", "found a range in a list, wanted it alone", f"as {FORM}")]
    try:
        return dotted, _spread(path, key_mark, mark, parse_range(text)), []
    except RangeError as error:
        return dotted, Axis([], []), [mark.problem("range", f"`{dotted}`: {error}", error.hint)]


def _spread(path: tuple[str, ...], key: Mark, mark: Mark, span: Range) -> Axis:
    """Return the axis of a range; problems of its values point at the range. Raises: RangeError."""
    dotted = ".".join(path)
    kind = number_kind(dotted)
    if kind is None and dotted in all_keys():
        raise RangeError("the setting takes no numbers", "write its values as a list")
    texts = values(span, None if kind is None else kind is int)

    def override(text: str) -> changes.Override:
        return changes.Override(path, key, Document(mark.source, resolve(text), {path: mark}))

    return Axis([(text, override(text)) for text in texts], span)


def _different(read: Iterable[tuple[str, changes.Override, Mark]]) -> tuple[Axis, list[Problem]]:
    """Return the axis of values, each with its place, and a problem for each that is there already."""
    kept, problems = [], []
    seen: dict[Any, str] = {}
    for item, override, mark in read:
        same = _hashable(override.value.data)
        if same in seen and not override.value.problems:
            twin = seen[same]
            message = f"found `{clip(item)}` twice" if twin == item else f"`{clip(item)}` is the same as `{clip(twin)}`"
            problems.append(mark.problem("value-twice", message, "remove one: each value is trained once per seed"))
        seen.setdefault(same, item)
        kept.append((item, override))
    return Axis(kept, [override.value.data for _, override in kept]), problems


def _mark(text: str, at: int, span: int) -> Mark:
    return Mark(Source(text, [text], override=True), 1, at + 1, max(1, span))


def _hashable(value: Any) -> Any:
    """Return a hashable key of a value, equal for 1 and 1.0, but not for 1 and true."""
    if isinstance(value, list):
        return ("list", *map(_hashable, value))
    if isinstance(value, dict):
        return ("dict", *((key, _hashable(item)) for key, item in sorted(value.items())))
    return (isinstance(value, bool), value)


def read_section(document: Document) -> tuple[Axes, int | None, list[Problem]]:
    """Take the section `sweep` out of a document: its axes by their dotted keys, its seeds, and all problems."""
    section = document.data.pop(SWEEP, None)
    if (SWEEP,) in document.bad or section is None:
        return {}, None, []
    mark = document.marks[(SWEEP,)]
    if not isinstance(section, dict):
        message = f"`{SWEEP}`: found {describe(section)}, wanted a mapping of settings to their values"
        return {}, None, [mark.problem("section", message, "for example sweep: {n_heads: [1, 2, 4], seeds: 8}")]
    axes: Axes = {}
    problems: list[Problem] = []
    seeds = section.get(SEEDS)
    if SEEDS in section and (not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1):
        seeds = None
        if (SWEEP, SEEDS) not in document.bad:
            message = f"`{SWEEP}.{SEEDS}`: found {describe(section[SEEDS])}, wanted a whole number from 1 on"
            problems.append(document.marks[SWEEP, SEEDS].problem("value", message))
    for key in (key for key in section if key != SEEDS):
        try:
            path, axis = _entry(document, key, section[key])
        except ConfigError as error:
            problems += error.problems
            continue
        dotted = ".".join(path)
        if dotted in axes:
            place = document.keys[(SWEEP, key)]
            before = axes[dotted].values[0][1].key
            message = f"`{clip(dotted)}` has values already, on line {before.line}"
            problems.append(place.problem("set-twice", message, "write all its values in one list"))
        elif axis.values:  # none where each is a problem of YAML, which the document has
            axes[dotted] = axis
    return axes, seeds, problems


def _entry(document: Document, key: str, value: Any) -> tuple[tuple[str, ...], Axis]:
    """Read a line of the section. Raises: ConfigError."""
    key_mark, place = document.keys[(SWEEP, key)], (SWEEP, key)
    path = resolve_key(key.strip(), all_keys(), key_mark)
    if path == ("train", "seed"):
        raise key_mark.error("list", "seeds are counted up from `train.seed`", f"write {SEEDS}: N instead")
    if path in (("task",), ("model",), ("train",)):
        example = {"task": "task.seq_len", "model": "model.n_heads", "train": "train.lr"}[path[0]]
        raise key_mark.error("section", f"`{path[0]}` is a section", f"write whole keys: {example}: [...]")
    mark = document.marks[place]
    if place in document.bad:
        return path, Axis([], [])
    if isinstance(value, dict):
        return path, _range_entry(document, path, key, value)
    if not isinstance(value, list) or not value:
        found = "an empty list" if value == [] else describe(value)
        way = (
            None if isinstance(value, list) or len(path) < 2 else f"a value for all trainings is set under `{path[0]}:`"
        )
        raise mark.error("axis", f"`{clip(key)}`: found {found}, wanted {_WANTED}", way)
    read = []
    for number, item in enumerate(value):
        inner = (*place, number)
        marks = {(*path, *at[len(inner) :]): one for at, one in document.marks.items() if at[: len(inner)] == inner}
        bad = {(*path, *at[len(inner) :]) for at in document.bad if at[: len(inner)] == inner}
        override = changes.Override(path, key_mark, Document(document.source, item, marks, bad=bad))
        if not bad:
            read.append((_typed(item, document.marks[inner]), override, document.marks[inner]))
    axis, problems = _different(read)
    if problems:
        raise ConfigError(problems)
    return path, axis


def _range_entry(document: Document, path: tuple[str, ...], key: str, value: Mapping[str, Any]) -> Axis:
    """Read `{from, to, steps, scale}`. Raises: ConfigError."""
    place: Path = (SWEEP, key)
    if any(at[:2] == place for at in document.bad):
        return Axis([], [])
    mark = document.marks[place]
    odd = [name for name in value if name not in KEYS]
    if odd:
        message = f"unknown key `{clip(odd[0])}` in a range, wanted from, to, steps and scale"
        raise document.keys[(*place, odd[0])].error("unknown-key", message, did_you_mean(odd[0], KEYS))
    missing = [name for name in KEYS[:3] if name not in value]
    if missing:
        raise mark.error("range", f"`{clip(key)}`: `{missing[0]}` is missing: wanted {_WANTED}")
    ends = [document.marks[(*place, name)] for name in KEYS[:2]]
    for name, end in zip(KEYS, ends, strict=False):
        if not isinstance(value[name], int | float) or isinstance(value[name], bool):
            raise end.error("range", f"`{clip(key)}`: found {describe(value[name])}, wanted a number")
    steps, scale = value["steps"], value.get("scale", SCALES[0])
    if not isinstance(steps, int) or isinstance(steps, bool):
        at = document.marks[(*place, "steps")]
        raise at.error("range", f"`{clip(key)}`: `steps`: found {describe(steps)}, wanted a whole number")
    if scale not in SCALES:
        at, wanted = document.marks[(*place, "scale")], " or ".join(SCALES)
        message = f"`{clip(key)}`: found {describe(scale)}, wanted {wanted}"
        raise at.error("range", message, did_you_mean(str(scale), SCALES))
    first, last = (_typed(value[name], end) for name, end in zip(KEYS, ends, strict=False))
    try:
        return _spread(path, document.keys[place], mark, Range(first, last, steps, scale == "log"))
    except RangeError as error:
        raise mark.error("range", f"`{clip(key)}`: {error}", error.hint) from None


def _typed(value: Any, mark: Mark) -> str:
    """Return a value of a file as typed; a list, or text over several lines, written out."""
    start = (mark.col or 1) - 1
    text = (mark.text or "")[start : start + mark.span]
    whole = text.strip() and not isinstance(value, list | dict) and (not isinstance(value, str) or value in text)
    return text if whole else write(value)
