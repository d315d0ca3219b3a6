"""Configs that are wrong are refused, at their place, with words that help: by hand, then files damaged at random."""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mhsa_cli.text import escape
from tests.faults.row import Place, Row
from tests.faults.rows import drawn_configs, reading
from tests.faults.rows.configs_bad import KEYS, OVERRIDES, VALUES, WHOLES

SECONDS = 1.0  # of computing, for one config
EVERY = 12  # one of so many is given to a real command too

# What is no file of YAML -> what must be said.
FILES = {
    "missing.yaml": "there is no such file",
    "folder": "found a folder",
    "pipe": "found a pipe",
    "socket": "found a socket",
    "/dev/zero": "found a device",
    "huge.yaml": "larger than 256 kB",
    "train.py": "this is Python",
    "debug.toml": "this is TOML",
    "[red]x[/].yaml": "[red]x[/].yaml:1:1: unknown key `lr`",
    "caf\udce9.yaml": "caf\\xe9.yaml:1:1: unknown key `lr`",
}


class Bad(NamedTuple):
    """A config and what must be said of it; line 0 is the file as a whole, and an override has no line."""

    name: str
    data: bytes
    line: int
    col: int
    said: tuple[str, ...]
    overrides: tuple[str, ...] = ()


class Case(NamedTuple):
    """A config by its name in the table, or the seed of a damaged one."""

    kind: str
    which: str


def value(row: str, above: int) -> Bad:
    """Make a file whose only fault is one value, some lines down."""
    setting, *said = row.split(" | ")
    dotted, _, text = setting.partition(":")
    home, _, key = dotted.partition(".")
    section, _, task = home.partition("/")
    lines = ["# tried"] * above + [f"{section}:"] + [f"  name: {task}"] * bool(task) + [f"  {key}:{text}", "# end", ""]
    col = len(f"  {key}: ") + 1 if text else 3
    return Bad(setting, "\n".join(lines).encode(), len(lines) - 2, col, tuple(said))


def key(row: str, above: int) -> Bad:
    """Make a file whose only fault is one key."""
    place, *said = row.split(" | ")
    section, _, name = place.partition(": ")
    top = section == "top"
    lines = ["# tried"] * above + ([] if top else [f"{section}:"]) + ["" if top else "  ", ""]
    lines[-2] += f"{name}: 3"
    return Bad(place, "\n".join(lines).encode(), len(lines) - 1, 1 if top else 3, ("`" + name.strip("'") + "`", *said))


@cache
def table() -> dict[str, Bad]:
    """Everything made by hand, by name."""
    made = [value(row, number % 5) for number, row in enumerate(VALUES.strip().splitlines())]
    made += [key(row, number % 4) for number, row in enumerate(KEYS.strip().splitlines())]
    for number, (text, line, col, said) in enumerate(WHOLES):
        data = text if isinstance(text, bytes) else text.encode()
        made.append(Bad(f"file {number}: {data[:50]!r}", data, line, col, said))
    for row in OVERRIDES.strip().splitlines():
        text, *said = row.split(" | ")
        made.append(Bad(text, b"train: {keep: 3}", 0, 0, tuple(said), (text,)))
    made += [Bad(name, b"lr: 3\n", 0, 0, (said,)) for name, said in FILES.items()]
    found = {bad.name: bad for bad in made}
    assert len(found) == len(made), "two of one name"
    return found


def cases(count: int, seed: int) -> Iterator[Case]:
    """The table, then damaged files."""
    names = list(table())
    yield from (Case("by hand", name) for name in names[:count])
    yield from (Case("damaged", str(seed * 10**9 + number)) for number in range(count - len(names)))


def unknown_keys_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """The mutant: what no section knows is forgotten, as some readers of configs do."""
    from mhsa_cli.config import load

    real = load.check

    def instead(document: Any) -> Any:
        for name, known in (("model", reading.MODEL), ("train", reading.TRAIN)):
            if isinstance(section := document.data.get(name), dict):
                document.data[name] = {key: item for key, item in section.items() if key in known}
        return real(document)

    patch.setattr(load, "check", instead)


def refused(path: str, overrides: tuple[str, ...]) -> tuple[Any, Any]:
    """Load a config, and give what it is or why it was refused; nothing else may come out, and not late."""
    from mhsa_cli.config.load import load_config
    from mhsa_cli.config.problems import ConfigError

    config, reason, began = None, None, time.process_time()
    try:
        config = load_config(path, overrides)
    except ConfigError as error:
        reason = error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    took = time.process_time() - began
    assert took < SECONDS, f"took {took:.1f} s"
    return config, reason


def check(case: Case, place: Place) -> None:
    """Hold one config to its row of the table, or a damaged one to what another reader makes of it."""
    if case.kind == "by hand":
        by_hand(table()[case.which], place)
    else:
        damaged(int(case.which), place.path / "c.yaml")


def by_hand(bad: Bad, place: Place) -> None:
    """See that it is refused for the fault that it has, there and in these words; now and then by the real command."""
    path = place.path / (bad.name if bad.name in FILES else "c.yaml")
    with socket.socket(socket.AF_UNIX) as listening:
        lay(path, bad.data, listening)
        config, error = refused(str(path), bad.overrides)
        assert error is not None, f"loaded, as {config.to_dict()}"
        assert error.exit_code == 2
        told = str(error)
        for words in bad.said:
            assert words in told, f"{words!r} is not in: {told}"
        if bad.line:
            assert f"{path}:{bad.line}:{bad.col}: " in told, f"wanted {bad.line}:{bad.col}, got: {told}"
        if bad.overrides and bad.said != ("wanted KEY=VALUE",):
            assert told.startswith(f"{escape(bad.overrides[0])}: "), told
        if list(table()).index(bad.name) % EVERY == 0 or bad.name in FILES:
            argv = ["train", "--config", path, *(part for text in bad.overrides for part in ("--set", text))]
            done = place.server.run(argv, place.path, place.mutant)
            assert (done.code, done.out) == (2, ""), f"exit code {done.code}: {done.out}{done.err}"
            for words in bad.said:
                assert words in done.err, f"{words!r} is not in: {done.err}"
            assert not (place.path / "runs").exists()


def lay(path: Path, data: bytes, listening: socket.socket) -> None:
    """Put the file there, or what is no file."""
    kind = path.name
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        listening.bind(str(path))
    elif kind == "huge.yaml":
        with path.open("wb") as file:
            file.truncate(2**31)
    elif kind != "missing.yaml" and path != Path("/dev/zero"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


def damaged(seed: int, path: Path) -> None:
    """Damage a file: it loads as what stands in it for another reader, or is refused at a place."""
    draw = random.Random(seed)
    data = drawn_configs.broken(draw, drawn_configs.written(draw, drawn_configs.config(draw)))
    path.write_bytes(data)
    config, error = refused(str(path), ())
    try:
        wanted = reading.resolved(reading.read(data))
    except reading.RefusedError as reason:
        assert config is None, f"loaded in spite of {reason}: {data!r}"
    else:
        if error is not None and "the limit is 16.0 GiB" in str(error):
            return
        assert error is None, f"{data!r} was refused: {error}"
        assert reading.same(config.to_dict(), wanted), f"{data!r} gave {config.to_dict()}"
    if error is not None:
        assert error.problems and error.exit_code == 2
        for problem in error.problems:
            line, col, text = problem.line, problem.col, problem.source_line
            assert line and col and text is not None and 1 <= col <= len(text) + 1, f"no place: {error} of {data!r}"
            assert len(problem.message) > 9 and not re.search("[\0-\x1f\x7f]", problem.message), repr(problem)


ROW = Row(
    fault="bad configs: by hand with place and words, damaged files against another reader",
    promise="P6",
    quick=250,
    long=100250,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.bad_configs:unknown_keys_are_dropped",
)
