"""model.attention: FILE:Class: problems are reported at their place, and the file is never run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.config.custom_attention import ATTENTION, is_file
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.own_file import file_problem, split
from mhsa_cli.config.problems import ConfigError, Problem
from mhsa_cli.config.schema import Config

Load = Callable[..., Config]
Complain = Callable[..., str]

MINE = """\
raise SystemExit("it was run")
class Mine: ...
if True:
    from there import Other as Another
Given = Mine
def factory(width):
    Inside = 3
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)


def wrong(attention: str, *more: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [f"model.attention={attention}", *more])
    return list(caught.value.problems)


@pytest.mark.parametrize("name", ["Mine", "Another", "Given", "factory"])
def test_names_in_a_file_are_found_without_running_it(name: str) -> None:
    config = load_config(None, [f"model.attention=mine.py:{name}"])
    assert config.model.attention == f"mine.py:{name}" and is_file(config.model.attention)


def test_a_file_in_another_folder_and_with_a_colon_in_its_name() -> None:
    Path("deep").mkdir()
    Path("deep/a:b.py").write_text("class Mine: ...")
    assert load_config(None, ["model.attention=deep/a:b.py:Mine"]).model.attention == "deep/a:b.py:Mine"
    assert split("deep/a:b.py:Mine") == ("deep/a:b.py", "Mine")


@pytest.mark.parametrize("name", ["notes.ipynb", "notes.md"])
def test_notebooks_and_markdown_are_searched_for_the_word(name: str) -> None:
    Path(name).write_text("class Mine(nn.Module)")
    assert file_problem(f"{name}:Mine", ATTENTION) is None
    (fault,) = wrong(f"{name}:Yours")
    assert fault.code == "custom-attention-file" and "`Yours`" in fault.message


@pytest.mark.parametrize(
    ("attention", "code", "hint"),
    [
        ("mine.py:Inside", "custom-attention-file", "classes in it: Mine"),
        ("mine.py", "custom-attention", "write mine.py:Mine"),
        ("gone.py:Mine", "custom-attention", "the path is relative to the working directory"),
        ("here.py:Mine", "custom-attention", "the path is relative to the working directory"),
        ("mine.txt:Mine", "custom-attention", "files may end in .py, .ipynb, .md"),
        ("mine.py:2x", "custom-attention", "write mine.py:Mine"),
        ("odd.py:Mine", "custom-attention-file", "python -m py_compile odd.py"),
        ("bytes.py:Mine", "custom-attention-file", None),
        ("sofmax", "value", "did you mean `softmax`?"),
        ("mine", "value", None),
    ],
)  # fmt: skip
def test_a_missing_file_or_name_is_reported_at_its_place(attention: str, code: str, hint: str | None) -> None:
    Path("here.py").mkdir()
    Path("odd.py").write_text("class Mine: ...\nclass class\n")
    Path("bytes.py").write_bytes(b"\xff\xfe\x00")
    (fault,) = wrong(attention)
    assert (fault.code, fault.hint, fault.col, fault.span) == (code, hint, 17, len(attention))


def test_the_words_of_a_block_that_is_not_there() -> None:
    found = "found `gone.py:Mine`: there is no such file"
    assert wrong("gone.py:Mine")[0].message == f"`model.attention`: {found}"
    assert wrong("mine.py:Inside")[0].message == "mine.py has no `Inside`"


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("positions=rope", "positions"),
        ("positions=alibi", "positions"),
        ("window=3", "window"),
        ("n_kv_heads=2", "custom-attention"),
    ],
)
def test_switches_of_our_attention_are_refused_beside_it(setting: str, code: str) -> None:
    assert [(fault.code, fault.file) for fault in wrong("mine.py:Mine", setting)] == [(code, setting)]


@pytest.mark.parametrize("setting", ["positions=learned", "positions=none", "norm=rmsnorm", "n_layers=3", "d_mlp=40"])
def test_other_settings_stay_free(setting: str) -> None:
    load_config(None, ["model.attention=mine.py:Mine", setting])


def test_the_config_of_a_run_is_readable_without_the_file() -> None:
    config = parse(b"model: {attention: 'gone.py:Mine'}", "config.yaml")
    assert config.model.attention == "gone.py:Mine"
    assert load_config(None, ["model.attention=gone.py:Mine"], files=False) == config
