"""The environments that a command is put into, a line each, and what of a plain one changes there."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.client import Prepare
from tests.faults.rows.small_disk import disk

HERE = "tests.faults.rows.environment_kinds"
DROP = ("tests.faults.rows.small_disk:no_longer_root",)
REFUSED = dict.fromkeys(("train", "runs"), 5)  # the two that look for the folder of runs


@contextmanager
def _here(folder: Path) -> Iterator[Path]:
    yield folder


def _named(name: str | bytes) -> Callable[[Path], AbstractContextManager[Path]]:
    @contextmanager
    def place(folder: Path) -> Iterator[Path]:
        path = folder / os.fsdecode(name)
        try:
            path.mkdir()
        except OSError:
            pytest.skip("a file system that takes no such names")
        yield path

    return place


def _with(*make: Callable[[Path], object]) -> Callable[[Path], AbstractContextManager[Path]]:
    @contextmanager
    def place(folder: Path) -> Iterator[Path]:
        for one in make:
            one(folder)
        yield folder
        folder.chmod(0o755)

    return place


@contextmanager
def _full(folder: Path) -> Iterator[Path]:
    """A temporary folder without room."""
    with disk(folder / "tmp", "size=4k"):
        (folder / "tmp/all").write_bytes(bytes(4096))
        yield folder


@dataclass(frozen=True)
class Kind:
    """An environment: variables set or missing, its folder, what is done in the process before, interpreter flags.

    `codes` are the exit codes that differ from a plain environment's; `plain_look` says that its help does not;
    `bare` leaves out all other variables.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    place: Callable[[Path], AbstractContextManager[Path]] = _here
    prepare: Sequence[Prepare] = ()
    codes: Mapping[str, int] = field(default_factory=dict)
    flags: Sequence[str] = ()
    bare: bool = False
    plain_look: bool = True
    encoding: str = "utf-8"
    first: str = ""


def _do(name: str, *arguments: object) -> list[Prepare]:
    return [(f"{HERE}:{name}", *arguments)]


def surround(patch: pytest.MonkeyPatch, env: dict[str, str], without: list[str]) -> None:
    """Set and remove variables."""
    os.environ.update(env)
    for name in list(os.environ) if without == ["*"] else without:
        os.environ.pop(name, None)
    if "TZ" in env:
        time.tzset()


def encoded(patch: pytest.MonkeyPatch, encoding: str, errors: str) -> None:
    """Let the streams have an encoding."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding=encoding, errors=errors)  # type: ignore[union-attr]


def closed(patch: pytest.MonkeyPatch, number: int) -> None:
    """Close a stream, as `<&-` does."""
    os.close(number)
    patch.setattr(sys, ("stdin", "stdout", "stderr")[number], None)


def masked(patch: pytest.MonkeyPatch, mask: int) -> None:
    """Set the umask."""
    os.umask(mask)


def few_files(patch: pytest.MonkeyPatch, most: int) -> None:
    """Allow so many open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def ignoring(patch: pytest.MonkeyPatch, names: list[str]) -> None:
    """Ignore signals, as nohup does."""
    for name in names:
        signal.signal(signal.Signals[name], signal.SIG_IGN)


def vanished(patch: pytest.MonkeyPatch) -> None:
    """Stand in a folder that is deleted."""
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()


def _env(first: str = "", *, plain_look: bool = True, **env: str) -> Kind:
    return Kind(env, first=first, plain_look=plain_look)


def _look(**env: str) -> Kind:
    """Make an environment in which the same things may look otherwise."""
    return Kind(env, plain_look=False)


def _streams(encoding: str, errors: str = "strict") -> Kind:
    return Kind(prepare=_do("encoded", encoding, errors), plain_look=encoding != "utf-16", encoding=encoding)


def _runs(value: str, codes: Mapping[str, int] | None = None, *make: Callable[[Path], object]) -> Kind:
    return Kind({"MHSA_RUNS": value}, place=_with(*make), codes=codes or {}, first="train")


# Put into a copy of the fork server, before the command begins.
FORKED: dict[str, Kind] = {
    "a folder that is gone": Kind(prepare=_do("vanished"), codes=REFUSED, first="runs"),
    "no HOME": Kind(without=["HOME"]),
    "HOME empty": _env(HOME=""),
    "HOME missing": _env(HOME="/nowhere/at/all"),
    "HOME a device": _env(HOME="/dev/null"),
    "HOME read-only": _env(HOME="/proc"),
    "no variables": Kind(without=["*"], plain_look=False),
    "PATH empty": _env(PATH=""),
    "no PATH": Kind(without=["PATH"]),
    "TMPDIR missing": _env(TMPDIR="/nowhere", TMP="/nowhere", TEMP="/nowhere"),
    "TMPDIR a device": _env(TMPDIR="/dev/null"),
    "TMPDIR full": Kind({"TMPDIR": "tmp"}, place=_full),
    "TERM unknown": _look(TERM="no-such-terminal"),
    "TERM empty": _look(TERM=""),
    "TERM a format": _look(TERM="%s%n{}"),
    "COLUMNS 0": _look(COLUMNS="0"),
    "COLUMNS 1": _look(COLUMNS="1"),
    "COLUMNS negative": _look(COLUMNS="-5"),
    "COLUMNS a word": _look(COLUMNS="abc"),
    "COLUMNS huge": _look(COLUMNS="100000"),
    "COLUMNS of 400 digits": _look(COLUMNS="9" * 400),
    "LINES 0": _env(LINES="0"),
    "LINES a word": _env(LINES="abc"),
    "NO_COLOR empty": _look(NO_COLOR=""),
    "FORCE_COLOR": _look(FORCE_COLOR="3"),
    "FORCE_COLOR and NO_COLOR": _look(FORCE_COLOR="1", NO_COLOR="1"),
    "CLICOLOR_FORCE": _look(CLICOLOR_FORCE="1", NO_COLOR=""),
    "COLORTERM odd": _look(COLORTERM="a lot of colours"),
    "a CI": _look(CI="true", GITHUB_ACTIONS="true"),
    "TZ missing": _env("train", TZ="Nowhere/Else"),
    "TZ a path": _env("runs", TZ="../../../etc/passwd"),
    "TZ far": _env("train", TZ="XXX+167:59:59"),
    "CUDA_VISIBLE_DEVICES": _env("train", CUDA_VISIBLE_DEVICES="abc,-1,99"),
    "a variable of 2 MB": _env(JUNK="x" * (1 << 21)),
    "MHSA_RUNS empty": _runs(""),
    "MHSA_RUNS below nothing": _runs("a/b", {"train": 5}),
    "MHSA_RUNS a file": _runs("file", REFUSED, lambda p: (p / "file").touch()),
    "MHSA_RUNS a link": _runs("link", {}, lambda p: (p / "real").mkdir(), lambda p: (p / "link").symlink_to("real")),
    "MHSA_RUNS a loop": _runs("loop", REFUSED, lambda p: (p / "loop").symlink_to("loop")),
    "MHSA_RUNS with slashes": _runs("./runs//"),
    "MHSA_RUNS the folder itself": _runs("."),
    "MHSA_RUNS not UTF-8": _runs("r\udcff\n[b]"),
    "MHSA_RUNS a tilde": _runs("~"),
    "MHSA_RUNS too long": _runs("r" * 256, REFUSED),
    "a folder with a newline": Kind(place=_named("a\nb\x1b[31m"), first="train"),
    "a folder not in UTF-8": Kind(place=_named(b"\xff\xe9"), first="train"),
    "a folder in brackets": Kind(place=_named("[red]{x}%s$HOME[x]"), first="train"),
    "a folder of 255 bytes": Kind(place=_named("é" * 127 + "x"), first="train"),
    "a folder like an option": Kind(place=_named("--help"), first="train"),
    "a folder that cannot be read": Kind(place=_with(lambda p: p.chmod(0o300)), prepare=[DROP]),
    "a folder that cannot be written": Kind(
        place=_with(lambda p: p.chmod(0o500)), prepare=[DROP], codes={"train": 5}, first="train"
    ),
    "umask 0": Kind(prepare=_do("masked", 0), first="train"),
    "umask 0777": Kind(prepare=[DROP, *_do("masked", 0o777)], codes={"train": 5}, first="train"),
    "stdin closed": Kind(prepare=_do("closed", 0), first="train"),
    "stdout closed": Kind(prepare=_do("closed", 1), plain_look=False, first="train"),
    "stderr closed": Kind(prepare=_do("closed", 2), first="train"),
    "16 open files": Kind(prepare=_do("few_files", 16), first="train"),
    "signals ignored": Kind(prepare=_do("ignoring", ["SIGHUP", "SIGPIPE", "SIGCHLD", "SIGTERM"]), first="train"),
    "ascii streams": _streams("ascii"),
    "utf-16 streams": _streams("utf-16"),
    "latin-1 streams": _streams("latin-1"),
    "koi8-r streams": _streams("koi8-r"),
    "cp437 streams that ignore": _streams("cp437", "ignore"),
}  # fmt: skip


def _python(flags: str = "", *, encoding: str = "utf-8", first: str = "", **env: str) -> Kind:
    return Kind(env, flags=flags.split(), encoding=encoding, first=first)


# Read by the interpreter or a library at its start, so in a process of its own.
REAL: dict[str, Kind] = {
    "PYTHONOPTIMIZE=1": _python(PYTHONOPTIMIZE="1", first="help"),
    "PYTHONOPTIMIZE=2": _python(PYTHONOPTIMIZE="2", first="help"),
    "no variables at all": Kind(bare=True, plain_look=False, first="bad"),
    "-I": _python("-I", first="bad"),
    "-W error": _python(PYTHONWARNINGS="error", first="runs"),
    "PYTHONDEVMODE": _python(PYTHONDEVMODE="1", first="inspect"),
    "-bb": _python("-bb", first="inspect"),
    "C locale": _python(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", first="inspect"),
    "locale that is not there": _python(LC_ALL="xx_YY.KOI8-R", LANG="nonsense", first="runs"),
    "PYTHONUTF8=1": _python(PYTHONUTF8="1", LC_ALL="C"),
    "PYTHONIOENCODING=ascii": _python(PYTHONIOENCODING="ascii:strict", first="inspect"),
    "PYTHONIOENCODING=utf-16": _python(PYTHONIOENCODING="utf-16", encoding="utf-16", first="bad"),
    "PYTHONIOENCODING=latin-1": _python(PYTHONIOENCODING="latin-1:strict", encoding="latin-1", first="bad"),
    "PYTHONIOENCODING=utf-7": _python(PYTHONIOENCODING="utf-7", encoding="utf-7", first="bad"),
    "PYTHONHASHSEED": _python(PYTHONHASHSEED="4294967295"),
    "PYTHONDONTWRITEBYTECODE": _python(PYTHONDONTWRITEBYTECODE="1"),
    "PYTHONUNBUFFERED": _python(PYTHONUNBUFFERED="1", first="inspect"),
    "PYTHONNOUSERSITE": _python(PYTHONNOUSERSITE="1"),
    "PYTHONSAFEPATH": _python(PYTHONSAFEPATH="1"),
    "PYTHONMALLOC": _python(PYTHONMALLOC="debug"),
    "PYTHONINTMAXSTRDIGITS": _python(PYTHONINTMAXSTRDIGITS="640"),
    "PYTHONPYCACHEPREFIX": _python(PYTHONPYCACHEPREFIX="/proc/nowhere"),
    "OMP_NUM_THREADS=0": _python(OMP_NUM_THREADS="0"),
    "OMP_NUM_THREADS a word": _python(OMP_NUM_THREADS="abc"),
    "OMP_NUM_THREADS=1000": _python(OMP_NUM_THREADS="1000", MKL_NUM_THREADS="1000"),
    "MKL_NUM_THREADS odd": _python(MKL_NUM_THREADS="-3", MKL_DYNAMIC="maybe", KMP_AFFINITY="nonsense"),
    "a variable of 130 kB": _python(JUNK="x" * 130_000),
}  # fmt: skip
