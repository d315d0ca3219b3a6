"""Every command with every option, on every kind of run, stream and width: the walk over what the program takes.

A new command or option is walked as soon as it is written; only a new kind of value needs a line in walk.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mhsa_cli.core.heads import random_baseline
from mhsa_cli.jobs import doctor
from mhsa_cli.jobs.grade import runner
from tests.commands import custom
from tests.commands.examined import good_imports
from tests.commands.shell import Said, at_step, facts, mhsa
from tests.commands.walk import Option, WalkedCommand, commands, values

COMMANDS = list(commands())
NORMAL = "a-run-with-a-name-that-is-longer-than-any-narrow-terminal-is-wide"
RUNS = {"normal": NORMAL, "untrained": "untrained", "narrow": "narrow", "stopped": "stopped"}
RUNS["trial"] = "grid/n_heads=2_seed=42"
TINY = """\
task: {name: shift, vocab_size: 7, seq_len: 5}
model: {d_model: 6, n_heads: 2, n_layers: 2, d_mlp: 4, residual: true, norm: layernorm, max_seq_len: 101}
train: {epochs: 1, steps_per_epoch: 2, batch_size: 3, eval_sequences: 4}
"""
FIVE_FILE = "a-file-with-a-block-as-people-name-what-they-hand-in-to-be-graded.py"
OWN = """\
import torch


class Task:
    def __init__(self, vocab_size=7, seq_len=5):
        self.vocab_size, self.seq_len = vocab_size, seq_len

    def sample(self, generator, rows):
        inputs = torch.randint(self.vocab_size, (rows, self.seq_len), generator=generator)
        return inputs, inputs


def score(ids):
    return (ids.unsqueeze(1) == ids.unsqueeze(2)).tril()
"""
FIVE = "class Five:\n    def __new__(cls, x=5):\n        return lambda x: x\n"
# What a command is given by the metavar of its arguments; {0} is a run.
ARGUMENTS = {
    "": (),
    "[RUN]": ("{0}",),
    "[RUN]...": ("{0}",),
    "[RUN | rm RUN...]": ("{0}",),
    "[RUN] [KEY=VALUE]...": ("{0}",),
    "RUN RUN": (NORMAL, "{0}"),
    "[KEY=VALUE]...": ("--config", "tiny.yaml", "train.lr=0.01"),
    "CONFIG... [KEY=VALUE]...": ("tiny.yaml", "train.lr=0.01"),
    "[CONFIG] [KEY=VALUE]...": ("tiny.yaml", "train.lr=0.01"),
    "[FILE]": ("-",),
    "BLOCK...": (f"{FIVE_FILE}:Five",),
    "[TASK | new FILE.py]": (),
}
NEEDS = {
    "generate": ("--prompt", "1"),
    "export": ("--to", "json"),
    "sweep": ("--seeds", "1"),
    "bench": ("--quick",),
}
# Options that stand instead of a command's arguments, and what must stand beside an option.
ALONE = ("train --resume", "train --attention", "sweep --resume", "sweep --attention", "verify --resume-check")
ALONE += ("train --task", "sweep --task")
ALONE += ("runs --sort", "runs --reverse", "runs --filter", "runs --status", "runs --all", "runs --yes")
BESIDE = {
    "inspect-heads --definition": ("--scores",),
    "train --attention": ("--resume", "own"),
    "sweep --attention": ("--resume", "grid"),
    "train --task": ("--resume", "task"),
    "sweep --task": ("--resume", "grid"),
    "runs --yes": ("rm", NORMAL),
}
DRAWING = ("curve", "inspect-heads", "timeline", "compare", "evaluate", "sweep")
BESIDE |= {f"{c} {o}": ("-o", "a.svg") for c in DRAWING for o in ("--as", "--width", "--theme", "--only")}
# Refused with exit 2 here, and why.
REFUSED = {
    "timeline --replay": "a pipe cannot redraw lines",
    **dict.fromkeys(("timeline --heads L0.H0", "timeline --heads L0"), "it goes with --replay"),
    "sweep --engine ray": "Ray has tests of its own",
    "sweep --address localhost:1": "it goes with --engine ray",
}
if importlib.util.find_spec("tensorboard") is None:
    REFUSED["export --to tensorboard"] = "its package is not installed"
EXCLUDED = {
    "bench": "it measures for seconds; its own tests run it",
    "explore": "a full screen of a terminal; its own tests run it",
}


@dataclass(frozen=True)
class Stream:
    """What a command writes to: an encoding, a width, and whether it is a terminal (of 256 colours, with NO_COLOR)."""

    encoding: str = "ascii"
    columns: int = 20
    terminal: bool = False

    def run(self, *arguments: str) -> Said:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(self.columns))
            if self.terminal:
                patch.setenv("TERM", "xterm-256color")
                patch.setenv("NO_COLOR", "1")
            said = mhsa(*arguments, encoding=self.encoding, terminal=self.terminal)
        text = said.out + said.err
        assert said.code != 1 and "Traceback" not in text, (self, arguments, text[-2000:])
        colours = r"\x1b\[(?:\d+;)*[349]\d(?:;\d+)*m" if self.terminal else r"[\x1b\r]"
        assert not re.search(colours, text), (self, arguments)
        return said


ENCODINGS, WIDTHS = ("ascii", "latin-1", "utf-8"), (20, 40, 60)
# Each encoding and each width, and a terminal; tests/long has the others.
SOME = [Stream(*pair, terminal=False) for pair in zip(ENCODINGS, WIDTHS, strict=True)] + [Stream("latin-1", 40, True)]
ALL = [Stream(*one) for one in itertools.product(ENCODINGS, WIDTHS, (False, True))]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind and a sweep, trained once; tests get copies."""
    place = tmp_path_factory.mktemp("walk")
    custom.write(place)
    (place / FIVE_FILE).write_text(FIVE)
    (place / "own.py").write_text(OWN)
    (place / "tiny.yaml").write_text(TINY)
    with contextlib.chdir(place):
        tiny = ("train", "--config", "tiny.yaml")
        assert mhsa(*tiny, "train.seed=1", "--name", NORMAL, "--score", "own.py:score").code == 0
        assert mhsa(*tiny, "task.name=own.py:Task", "--name", "task").code == 0
        assert mhsa(*tiny, "epochs=0", "--name", "untrained").code == 0
        assert mhsa(*tiny, "d_model=1", "n_heads=1", "n_layers=1", "--name", "narrow").code == 0
        assert mhsa(*tiny, "model.attention=mine.py:Mine", "--name", "own").code == 0
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        with at_step(2, lambda: signal.raise_signal(signal.SIGINT)):
            assert mhsa(*tiny, "epochs=3", "--name", "stopped").code == 130
        signal.signal(signal.SIGINT, before)
        assert mhsa("sweep", "--config", "tiny.yaml", "n_heads=1,2", "--seeds", "1", "--name", "grid").code == 0
    assert facts(place / "runs" / "stopped")["status"] == "stopped"
    return place


@pytest.fixture
def place(prepared: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy to stand in. The grader is a stand-in, and random heads are few: both take their time elsewhere."""
    monkeypatch.setattr(runner, "GRADER", "tests.commands.stand_in")
    monkeypatch.setattr(random_baseline, "HEADS", 3)
    monkeypatch.setattr(doctor.imports, "import_all", lambda _: good_imports())
    shutil.copytree(prepared, here, dirs_exist_ok=True)
    yield here


def line(command: WalkedCommand, run: str = NORMAL, option: str = "") -> tuple[str, ...]:
    """The command with what it needs, beside an option that is to be added."""
    named = f"{command} {option}"
    assert command.takes in ARGUMENTS, f"add a value for the argument {command.takes} to ARGUMENTS"
    given = () if named in ALONE else tuple(one.format(run) for one in ARGUMENTS[command.takes])
    given = given[2:] if given and given[0] == option else given
    needs = NEEDS.get(str(command), ()) if named not in ALONE else ()
    needs = () if option in needs else needs
    return (*command.words, *given, *needs, *BESIDE.get(named, ()))


def offered(said: Said) -> list[list[str]]:
    """The commands of ours that are offered next, but for those where a run has still to be chosen."""
    found = [shlex.split(text) for text in re.findall(r"^next: (mhsa .*)$", said.out, re.MULTILINE)]
    return [words[1:] for words in found if not any(word.isupper() for word in words)]


LOOKING = [command for command in COMMANDS if "RUN" in command.takes and str(command) not in EXCLUDED]
KINDS = [pytest.param(c, run, id=f"look-{c}-{kind}") for c in LOOKING for kind, run in RUNS.items()]


@pytest.mark.parametrize(("command", "run"), KINDS)
def test_looking_back(command: WalkedCommand, run: str, place: Path) -> None:
    look(command, run, SOME)


def look(command: WalkedCommand, run: str, streams: Iterable[Stream]) -> None:
    """Give a command a run and hold what it says on each stream to what the run has."""
    heads = [f"L{h['layer']}.H{h['head']}" for h in mhsa("explain", run, "--json").json["heads"]]
    for stream in streams:
        said = stream.run(*line(command, run))
        shutil.rmtree(Path(run).name, ignore_errors=True)
        Path(Path(run).name + ".json").unlink(missing_ok=True)
        Path(f"report-{Path(run).name}.html").unlink(missing_ok=True)
        assert said.code == 0, (stream, said.err)
        for next_ in offered(said):
            assert run in next_, stream
        if str(command) not in ("generate", "verify", "export", "report"):
            assert offered(said), stream
        if str(command) in ("inspect-heads", "explain", "timeline", "compare") and not stream.terminal:
            assert all(head in said.out for head in heads), (stream, heads)


OTHERS = [command for command in COMMANDS if command not in LOOKING and str(command) not in EXCLUDED]


@pytest.mark.parametrize("command", [pytest.param(command, id=f"plain-{command}") for command in OTHERS])
def test_commands_by_themselves(command: WalkedCommand, place: Path) -> None:
    for stream in SOME:
        said = stream.run(*line(command))
        assert said.code == 0, (stream, said.err)
        assert str(command) != "check" or stream.terminal or f"{FIVE_FILE}:Five" in said.out, stream


@pytest.mark.parametrize(
    "stream", [pytest.param(s, id=f"names-{s.encoding}-{s.columns}") for s in ALL if not s.terminal]
)
def test_runs_names_every_run_whole(stream: Stream, place: Path) -> None:
    said = stream.run("runs")
    assert said.code == 0 and all(name in said.out for name in (*RUNS.values(), "grid") if "/" not in name)


OPTIONS = [(command, option) for command in COMMANDS for option in command.options]
WALKED = [
    pytest.param(command, option, id=f"option-{command} {option.names[0]}")
    for command, option in OPTIONS
    if str(command) not in EXCLUDED
]


@pytest.mark.parametrize(("command", "option"), WALKED)
def test_options(command: WalkedCommand, option: Option, place: Path) -> None:
    run = {"--attention": "own", "--task": "task"}.get(option.names[0], NORMAL)
    codes = []
    for given in values(command, option):
        said = Stream().run(*line(command, run, option.names[0]), *given)
        codes.append(said.code)
        if " ".join((str(command), *given)) in REFUSED:
            assert said.code == 2 and any(word in said.err for word in given)
        elif option.kind in (int, float):  # the least that it takes is one of the two
            assert said.code == 0 or said.code == 2 and given[1] in said.out + said.err, said.err
        else:
            assert said.code == 0, said.err
            if option.metavar in ("PATH", "FILE.svg|.html|.png"):
                assert Path(given[1]).exists() and f"wrote {given[1]}" in said.out + said.err
            if option.names == ("--name",):
                assert f"wrote runs/{given[1]}" in said.out.splitlines() and offered(said)
    assert option.kind not in (int, float) or 0 in codes


def test_what_is_no_number_or_too_small_is_refused_and_quoted(place: Path) -> None:
    for command, option in ((c, o) for c, o in OPTIONS if o.kind in (int, float)):
        for wrong in ("many", "-1", *(["nan"] if option.kind is float else [])):
            said = Stream(columns=80).run(*line(command, NORMAL, option.names[0]), option.names[0], wrong)
            assert said.code == 2 and said.out == "", (command, option, wrong)
            assert wrong in said.err and option.names[0].lstrip("-") in said.err


SINGLE = [(c, o) for c, o in OPTIONS if not o.many and (o.kind is not bool or o.names[1:])]


def test_an_option_of_one_value_given_twice_is_refused(place: Path) -> None:
    assert len(SINGLE) > 50
    before = sorted(place.rglob("*"))
    for command, option in SINGLE:
        first, *more = values(command, option)
        second = more[0] if more else first
        said = Stream(columns=80).run(*line(command, NORMAL, option.names[0]), *first, *second)
        assert said.code == 2 and said.out == "", (command, option)
        assert first[-1] in said.err and second[-1] in said.err
    assert sorted(place.rglob("*")) == before


SETTING = [pytest.param(command, id=f"twice-setting-{command}") for command in COMMANDS if "KEY=VALUE" in command.takes]


@pytest.mark.parametrize("command", SETTING)
def test_a_setting_given_twice_is_refused(command: WalkedCommand, place: Path) -> None:
    whole = line(command, option="--resume-check") if str(command) == "verify" else line(command)
    whole = (*whole, "--resume-check", "tiny.yaml") if str(command) == "verify" else whole
    for first, second in (("train.lr=0.1", "train.lr=0.2"), ("lr=0.1", "train.lr=0.2")):
        said = Stream(columns=80).run(*(one for one in whole if not one.startswith("train.lr")), first, second)
        assert said.code == 2 and said.out == ""
        assert first in said.err and second in said.err


@pytest.mark.parametrize("kind", [pytest.param(kind, id=f"offered-{kind}") for kind in RUNS])
def test_every_offered_command_is_one(kind: str, place: Path) -> None:
    """Those that commands on a run of this kind offer; those of commands without a run stand with the normal one."""
    walked = [*LOOKING, *(OTHERS if kind == "normal" else ())]
    found = {tuple(words) for command in walked for words in offered(Stream().run(*line(command, RUNS[kind])))}
    assert len(found) >= 3
    for words in found:
        assert mhsa(*words).code == 0, words
