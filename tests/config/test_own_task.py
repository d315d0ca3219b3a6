"""task.name: FILE.py:Name: settings come from the file, problems have their place, and the file is never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.own_task import OwnTask, short_name
from mhsa_cli.config.problems import ConfigError, Problem
from mhsa_cli.config.schema import Config

MINE = """\
raise SystemExit("it was run")
WIDTH = 5

def sums(generator, rows, *, vocab_size=11, seq_len=2, carry: bool = False, base=WIDTH):
    ...

class Sized:
    vocab_size: int = 9
    seq_len = 7
    def sample(self, generator, rows): ...

class Bare:
    def __init__(self, vocab_size, share=0.5, *, mode="first"): ...

class Open(Sized):
    def __init__(self, **settings): ...
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)


def task_of(name: str, *more: str) -> dict[str, Any]:
    config = load_config(None, [f"task.name=mine.py:{name}", *more])
    assert isinstance(config.task, OwnTask)
    return config.task.settings


def wrong(name: str, *more: str) -> Problem:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [f"task.name={name}", *more])
    (problem,) = caught.value.problems
    return problem


def test_defaults_are_those_written_in_the_file() -> None:
    assert task_of("sums") == {"vocab_size": 11, "seq_len": 2, "carry": False}  # that of base is no plain value
    assert task_of("Sized") == {"vocab_size": 9, "seq_len": 7}
    bare = task_of("Bare", "task.vocab_size=5", "task.seq_len=3", "task.mode=last")
    assert bare == {"vocab_size": 5, "seq_len": 3, "share": 0.5, "mode": "last"}
    assert task_of("Open", "task.vocab_size=4", "task.seq_len=4", "task.any=8")["any"] == 8


def test_settings_of_the_command_line_go_before_those_of_the_file() -> None:
    assert task_of("sums", "task.base=3", "task.seq_len=4", "task.carry=true") == {
        "vocab_size": 11, "seq_len": 4, "carry": True, "base": 3
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more", "code", "hint"),
    [
        ("mine.py:sums", ("task.bases=3",), "unknown-setting", "its settings: vocab_size, seq_len, carry, base"),
        ("mine.py:Sized", ("task.carry=true",), "unknown-setting", "its settings: vocab_size, seq_len"),
        ("mine.py:Bare", ("task.vocab_size=5",), "missing", None),
        ("mine.py:sums", ("task.seq_len=0",), "value", None),
        ("mine.py:sums", ("task.base=[1, 2]",), "value", None),
        ("mine.py:Nobody", (), "own-task-file", "functions and classes in it: sums, Sized, Bare, Open"),
        ("mine.py", (), "own-task", "write mine.py:sums"),
        ("gone.py:Mine", (), "own-task", "the path is relative to the working directory"),
        ("notes.md:Mine", (), "own-task", "files may end in .py"),
        ("mine", (), "unknown-task", None),
    ],
)
def test_problems_have_a_code_and_a_way_out(name: str, more: tuple[str, ...], code: str, hint: str | None) -> None:
    found = wrong(name, *more)
    assert (found.code, found.hint) == (code, hint)
    assert found.override  # it stands where it was written


def test_a_config_is_written_and_read_back_without_the_file() -> None:
    config = load_config(None, ["task.name=mine.py:sums", "task.base=7"])
    Path("mine.py").unlink()
    again = parse(dump_yaml(config).encode(), "config.yaml")
    assert again == config and isinstance(again, Config)


def test_a_short_name_is_that_of_the_function_or_class() -> None:
    assert (short_name("deep/mine.py:Sized"), short_name("copy")) == ("Sized", "copy")


def test_a_file_of_rows_needs_no_name_and_is_as_long_as_its_longest() -> None:
    Path("sums.txt").write_text("1 + 2 -> 3\n10 + 20 + 3 -> 3 3\n")
    config = load_config(None, ["task.rows=sums.txt"])
    assert (config.task.name, config.task.seq_len) == ("rows", 7)
    assert load_config(None, ["task.rows=sums.txt", "task.seq_len=12"]).task.seq_len == 12
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["task.rows=none.txt"])
    assert [problem.code for problem in caught.value.problems] == ["rows"]
