"""Run folders in which somebody changed one value and made all hashes right again: every command answers or refuses."""

from __future__ import annotations

import atexit
import json
import os
import random
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import typer.main

from tests.commands.shell import mhsa
from tests.faults.client import ForkServer
from tests.faults.row import Place, Row

MEGABYTES, SECONDS = 1000, 20  # beyond what this process has; a command that takes more fails
SMALL = "task.name=shift vocab_size=7 seq_len=4 d_model=4 n_heads=2 batch_size=3 eval_sequences=5 steps_per_epoch=2"
STEP = "checkpoints/step-00000004"
TRIAL = "n_heads=2_seed=42"
GIVEN = tuple(f"home/{name}" for name in ("runs/r/", "runs/s/", "r-", "r.json", "r.npz", "a.svg"))
BUILT = cache(typer.main.get_command)  # once for thousands of calls
MARK = "@forged@"
HERE = "@key@"  # the key or place of the value itself
# What is written in the place of a value, as JSON text.
VALUES = {
    "null": "null",
    "true": "true",
    "zero": "0",
    "negative": "-1",
    "fraction": "0.5",
    "huge": str(10**30),
    "too long a number": "1" * 5000,
    "infinite": "1e400",
    "largest": "1.7e308",
    "NaN": "null",  # and named under "nonfinite"
    "NaN itself": "NaN",
    "list": "[]",
    "numbers": "[1, -2.5, null]",
    "object": "{}",
    "objects": '{"a": {"b": [{}]}, "step": [], "": 1}',
    "deep": "[" * 200 + "]" * 200,
    "deeper": '{"a":' * 5000 + "1" + "}" * 5000,
    "empty": '""',
    "word": '"x"',
    "number in a text": '"7"',
    "long": f'"{"long " * 20_000}"',
    "control": r'"\u001b[31m\u001b]0;x\u0007\r\n\u0000\u009b"',
    "markup": '"[red]x[/] [/] [link=x]:smile:"',
    "upwards": '"../../../up"',
    "absolute": '"/tmp/absolute"',
    "unicode": r'"\u202e\u6f22\u5b57e\u0301\ud83d\udc69\udce9\ud800"',
    "braces": '"%s{0}{}%(a)s"',
    "twice": f'1, "{HERE}": [2]',
    "again": f'"a", "{HERE}": "b"',
}
FILES = ["run.json", "heads.json", "heads.jsonl", "metrics.jsonl", f"{STEP}/state.json", f"{STEP}/MANIFEST.json"]
FILES += [f"{STEP}/model.safetensors", f"{STEP}/optimizer.safetensors", "sweep.json", f"{TRIAL}/run.json"]
ON = ["train", "--resume", "r", "train.epochs=3"]
GENERATE = ["generate", "r", "--prompt", "1 2"]
VERIFY = [["verify", "r"], ["verify", "r", "--json"]]
SWEPT = [["verify", "s"], ["verify", "s", "--json"], ["sweep", "--resume", "s"], ["sweep", "--resume", "s", "--json"]]
SWEPT += [["runs"], ["runs", "--runs", "runs/s"], ["runs", "--runs", "runs/s", "--json"]]
CHECKPOINT = [*VERIFY, GENERATE, [*GENERATE, "--json"], ON, ["train", "--resume", "r"], ["compare", "r", "t"]]
CHECKPOINT += [["inspect-heads", "r", "--tokens", "1 2"], ["inspect-heads", "r", "--circuits"]]
CHECKPOINT += [["export", "r", "--to", name] for name in ("npz", "transformer-lens")]
EXPORTS = [["export", "r", "--to", name] for name in ("json", "csv")]
HEADS = [["inspect-heads", "r"], ["inspect-heads", "r", "--json"], ["inspect-heads", "r", "--scores"], ["explain", "r"]]
HEADS += [["explain", "r", "--json"], ["inspect-heads", "r", "-o", "a.svg"], ["inspect-heads", "r", "--head", "L0.H1"]]
LATER = [["timeline", "r"], ["timeline", "r", "--json"], ["timeline", "r", "--target", "first"]]
CURVES = [["curve", "r"], ["curve", "r", "--json"], ["curve", "r", "t"], ["curve", "r", "-o", "a.svg"]]
BOTH = [["compare", "r", "t"], ["compare", "t", "r", "--json"]]
LISTED = [["runs"], ["runs", "--json"], ["runs", "r"], ["runs", "r", "--json"], ["verify"]]
DONE = [["train", "--resume", "r"], ["train", "--resume", "r", "--json"], ON]
READERS: Mapping[str, list[list[str]]] = {
    "run.json": [*VERIFY, *LISTED, *HEADS, *LATER, *CURVES, *BOTH, *EXPORTS, *DONE, GENERATE],
    "heads.json": [*VERIFY, *HEADS, *LATER, *BOTH, *EXPORTS, *DONE],
    "heads.jsonl": [*VERIFY, *LATER, *LATER, ["export", "r", "--to", "json"], ON],
    "metrics.jsonl": [*VERIFY, *CURVES, *LATER, *BOTH, *EXPORTS, *DONE],
    "sweep.json": SWEPT,
    f"{TRIAL}/run.json": SWEPT,
}


class Case(NamedTuple):
    """Which value of which file becomes what; the seed says where it is, and which commands look."""

    file: str
    value: str
    seed: int
    where: tuple[str | int, ...] | None = None


# What was once met with a traceback.
MET = [Case("metrics.jsonl", value, 0, ("kind",)) for value in ("list", "object")]
MET += [Case(f"{STEP}/state.json", value, 0, ("step",)) for value in ("word", "huge")]
MET += [Case(f"{STEP}/state.json", "deeper", 0, ("config",)), Case(f"{STEP}/state.json", "null", 0, ("seed",))]
MET += [Case("sweep.json", value, 0, ("cells",)) for value in ("numbers", "empty")]
MET += [Case(f"{TRIAL}/run.json", value, 0, ("final",)) for value in ("word", "objects")]


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every value in some file and every file, then all of both at more and more places."""
    draw, values = random.Random(seed), list(VALUES)
    for number in range(count):
        if number < len(MET):
            yield MET[number]
        else:
            file, value = FILES[number % len(FILES)], values[number % len(values)]
            yield Case(file, value, draw.getrandbits(30))


@cache
def trained(server: ForkServer) -> Path:
    """Two runs and a sweep of two trials, whose copies are forged."""
    home = Path(tempfile.mkdtemp(prefix="fault-forged-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for command in (
        ["train", *SMALL.split(), "epochs=2", "--name", "r"],
        ["train", *SMALL.split(), "epochs=2", "seed=9", "--name", "t"],
        ["sweep", *SMALL.replace("n_heads=2", "n_heads=1,2").split(), "epochs=2", "--seeds", "1", "--name", "s"],
    ):
        done = server.run(command, home)
        assert done.code == 0, done.err
    return home


def forge(case: Case, runs: Path) -> None:
    """Change the value, and make all hashes right again."""
    draw = random.Random(case.seed)
    swept = case.file in ("sweep.json", f"{TRIAL}/run.json")
    path = runs / ("s" if swept else "r") / case.file
    run = path.parent if path.name == "run.json" else runs / "r"
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        size = int.from_bytes(data[:8], "little")
        header = changed(json.loads(data[8 : 8 + size]), case, draw).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
    elif path.suffix == ".jsonl":
        lines = data.splitlines()
        at = draw.randrange(len(lines))
        lines[at] = changed(json.loads(lines[at]), case, draw).encode()
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    elif path.name in ("run.json", "sweep.json", "MANIFEST.json"):
        write = rendered if path.name == "MANIFEST.json" else sealed
        path.write_bytes(write(changed(unsealed(data), case, draw)))
    else:
        path.write_text(changed(json.loads(data), case, draw) + "\n")
    if path.parent.name == Path(STEP).name and path.name != "MANIFEST.json":
        from mhsa_cli.runs import commit

        files = {one.name: one.read_bytes() for one in path.parent.iterdir() if one.name != "MANIFEST.json"}
        (path.parent / "MANIFEST.json").write_bytes(commit._manifest(path.parent.name, files))
    elif path.parent == run and path.name != "run.json":
        from mhsa_cli.runs import hashes

        content = {**unsealed((run / "run.json").read_bytes()), "files": hashes.list_files(run)}
        (run / "run.json").write_bytes(sealed(json.dumps(content)))


def changed(content: dict[str, Any], case: Case, draw: random.Random) -> str:
    """Write a document with one value changed."""
    place: Any = content
    where = list(case.where or ())
    while not where or isinstance(place, dict | list):
        if case.where is None:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            where.append(draw.choice(keys))
        key = where[-1] if case.where is None else where[0]
        inside = place[key]
        if case.where is not None or not inside or not isinstance(inside, dict | list) or draw.random() < 0.3:
            break
        place = inside
    place[key] = MARK
    if case.value == "NaN":
        content["nonfinite"] = {"/".join(map(str, where)): draw.choice(["nan", "inf", "-inf"])}
    text = json.dumps(content, indent=1 if draw.random() < 0.5 or "files" in content else None)
    value = VALUES[case.value]
    if isinstance(key, int):
        value = value.replace(f'"{HERE}": ', "")
    return text.replace(f'"{MARK}"', value.replace(HERE, str(key)))


def unsealed(data: bytes) -> dict[str, Any]:
    """Read a document without the hash of its own."""
    return {key: value for key, value in json.loads(data).items() if key != "sha256"}


def sealed(text: str) -> bytes:
    """Write run.json's last line, as whoever forged it would."""
    body = text.rstrip()[:-1].rstrip().encode()
    return body + b',\n "sha256": "' + sha256(body).hexdigest().encode() + b'"\n}\n'


def rendered(text: str) -> bytes:
    """Write a manifest as the program does, if it can be read at all."""
    from mhsa_cli.runs import commit

    try:
        return commit._render(json.loads(text))
    except (ValueError, RecursionError):
        return text.encode()


@contextmanager
def confined() -> Iterator[None]:
    """Let commands in this process have so much more memory and time and no more."""

    def late(*_: object) -> None:
        raise TimeoutError("it hangs")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 2**20, limits[1]))
    try:
        with mock.patch.object(typer.main, "get_command", BUILT):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outside(place: Path) -> dict[str, Any]:
    """Everything that is not in the folder of the forged run or sweep, and is not a file that was asked for."""
    found = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if not name.startswith(GIVEN):
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def check(case: Case, place: Place) -> None:
    """Forge a copy and let commands look at it: an answer or a refusal, never a bug, and nothing is done elsewhere."""
    import torch

    torch.set_num_threads(1)
    home = place.path / "home"
    shutil.copytree(trained(place.server), home)
    forge(case, home / "runs")
    before = outside(place.path)
    readers = READERS.get(case.file, CHECKPOINT)
    draw = random.Random(case.seed)
    commands = draw.sample(readers, min(4, len(readers))) if case.where is None else readers
    here = Path.cwd()
    os.chdir(home)
    try:
        for command in sorted(commands, key=lambda one: "--resume" in one):  # what changes it comes last
            with confined():
                said = mhsa(*command)
            told = f"{' '.join(command)}: exit code {said.code}: {said.err[-500:]}"
            assert said.code in (0, 2, 4), told
            bad = {char for char in said.out + said.err if not char.isprintable() and char != "\n"}
            assert not bad, f"{told}: {bad} on the screen"
            if said.code == 0 and "--json" in command:
                said.json  # noqa: B018
            if "--resume" in command and said.code == 0:
                break  # it is no longer what was forged
    finally:
        os.chdir(here)
    after = outside(place.path)
    assert after == before, (
        f"written elsewhere: {[name for name in {*after, *before} if after.get(name) != before.get(name)]}"
    )


def believing(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a line's kind may be anything."""
    from mhsa_cli.runs import metrics

    def lines(self: Any) -> Iterator[dict[str, Any]]:
        for line in self._lines():
            yield metrics.restore_nonfinite(metrics.parse_json(line, self.path))

    patch.setattr(metrics.Records, "__iter__", lines)


ROW = Row(
    fault="forged runs: one value of a file changed, of any kind, and all hashes made right again",
    promise="P4",
    quick=60,
    long=3000,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.forged:believing",
)
