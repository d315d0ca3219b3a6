from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.schema import Config
from tests.environment import plain

Complain = Callable[..., str]

SCRIPT = """
import sys
from mhsa_cli.config.load import load_config
from mhsa_cli.config.problems import ConfigError
try:
    print(load_config(sys.argv[1], sys.argv[2:]).train.lr)
except ConfigError as error:
    sys.stderr.buffer.write(str(error).encode("ascii", "backslashreplace"))
    sys.exit(error.exit_code)
"""


def run(*arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    environment = {**plain(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, env=environment, check=False)


def test_a_byte_order_mark_is_skipped_whatever_the_locale(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbftrain:\n  lr: 1e-3  # \xc3\xa9\n")
    result = run(str(path))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"0.001\n", b"")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such file names")
def test_a_file_name_that_is_not_utf8_works_and_is_shown_with_escapes(tmp_path: Path) -> None:
    good, bad = os.fsencode(tmp_path) + b"/caf\xe9.yaml", os.fsencode(tmp_path) + b"/b\xe9.yaml"
    Path(os.fsdecode(good)).write_bytes(b"train: {lr: 0.125}")
    Path(os.fsdecode(bad)).write_bytes(b"train: {lr: x}")
    assert run(good).stdout == b"0.125\n"
    result = run(bad)
    assert result.returncode == 2
    assert b"/b\\xe9.yaml:1:13: `train.lr`: found the text `x`" in result.stderr


def test_non_ascii_letters_in_a_file_do_not_break_the_message(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("train: {schedule: 漢字}", encoding="utf-8")
    result = run(str(path))
    assert result.returncode == 2
    assert result.stderr.splitlines()[2] == b" " * 22 + b"^^^^"


def test_loading_needs_neither_torch_nor_rich_nor_typer() -> None:
    code = (
        "import sys, mhsa_cli.config.load; print([m for m in ('torch', 'rich', 'typer', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_paths_are_taken_from_the_directory_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.yaml").write_text("train: {lr: 0.75}")
    monkeypatch.chdir(tmp_path)
    assert load_config("here.yaml").train.lr == 0.75


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("train: {keep: 9}")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "a.yaml")
    assert load_config(str(tmp_path / "b.yaml")).train.keep == 9


def test_all_problems_are_reported_in_the_order_of_the_file(complain: Complain) -> None:
    assert (
        complain("train:\n  leraning_rate: 1\n  seed: true\nmodel:\n  norm: ${norm}\n  block_size: 8\nlr: 3\n")
        == """\
c.yaml:2:3: unknown key `leraning_rate` in `train`
      leraning_rate: 1
      ^^^^^^^^^^^^^
  did you mean `lr`?
c.yaml:3:9: `train.seed`: found `true`, wanted a whole number from 0 to 2**63 - 1
      seed: true
            ^^^^
c.yaml:5:9: found `${norm}`: interpolation is not supported
      norm: ${norm}
            ^^^^^^^
  write the value
c.yaml:6:3: unknown key `block_size` in `model`
      block_size: 8
      ^^^^^^^^^^
  `block_size` means two things: the length of a training row is `task.seq_len`, the reach of the positions is \
`model.max_seq_len`
c.yaml:7:1: unknown key `lr`
    lr: 3
    ^^
  `lr` belongs under `train:`"""
    )


def test_a_value_complained_about_is_not_complained_about_again(complain: Complain) -> None:
    assert complain("model:\n  d_model: 0x21\n  n_heads: 4\n").count("c.yaml") == 1
    assert complain("task: {name: text, path: '${file}'}").count("c.yaml") == 1


def test_numbers_of_the_problems_are_plain_data() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["train.lr=abc"])
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.col, problem.span, problem.override) == ("train.lr=abc", 1, 10, 3, True)


def test_defaults_need_no_file() -> None:
    assert load_config(None) == Config()


ODD = r"""
task: {"\udc80": 1, name: reverse, seq_len: 9}
"\uD800": {"\uD83D": {"\uDFFF": [2]}}
model: {"\uD83D\uDE00": *a, d_model: {"\uD800": 3}}
train:
  "\uDCFF": 1
""".lstrip()


def test_a_key_that_is_not_unicode_is_unknown_like_any_other() -> None:
    """A lone surrogate, or a byte of the command line: nothing beside it goes unsaid, and no value is believed."""
    with pytest.raises(ConfigError) as caught:
        parse(ODD.encode(), "c.yaml", ["train.\udc81=5", "\udc82=6", "\udc83.lr=7", "lr=none"])
    found = [(problem.line, problem.col) for problem in caught.value.problems if not problem.override]
    assert found == [(1, 8), (1, 45), (2, 1), (3, 25), (3, 38), (5, 3)]  # of `*a` it is said that it is an alias
    typed = {problem.file: problem.source_line for problem in caught.value.problems if problem.override}
    assert list(typed) == ["train.\udc81=5", "\udc82=6", "\udc83.lr=7", "lr=none"]
    told = str(caught.value)
    told.encode()  # it can be shown
    assert all(f"`{key}`" in told for key in (r"\x80", r"\ud800", r"\xff", r"\x81", r"\x82", r"\x83"))
    same = ODD.replace(r"\u", "od")  # of one length
    with pytest.raises(ConfigError) as other:
        parse(same.encode(), "c.yaml", ["train.odd=5", "odd=6", "ood.lr=7", "lr=none"])
    assert [(problem.line, problem.col) for problem in other.value.problems if not problem.override] == found
    assert len(other.value.problems) == len(caught.value.problems)
