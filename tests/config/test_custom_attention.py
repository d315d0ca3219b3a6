"""model.attention: FILE:Class in a config: what is wrong with it is said at its place, and the file is never run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.config.custom_attention import file_problem, is_file, split
from mhsa_cli.config.load import Config, load_config, parse

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
WANTED = "wanted one of softmax, linear, uniform, or your own block: FILE.py:Class"


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)


def wrong(attention: str, *more: str) -> str:
    with pytest.raises(Exception, match=".") as caught:
        load_config(None, [f"model.attention={attention}", *more])
    return str(caught.value)


@pytest.mark.parametrize("name", ["Mine", "Another", "Given", "factory"])
def test_what_the_file_names_is_found_without_running_it(name: str) -> None:
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
    assert file_problem(f"{name}:Mine") is None
    assert "nowhere says `Yours`" in wrong(f"{name}:Yours")


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        ("mine.py:Inside", ["mine.py has no `Inside`", "classes in it: Mine"]),
        ("mine.py", ["without the name of a class", "write mine.py:Mine"]),
        ("gone.py:Mine", ["there is no such file", "the path counts from the folder you are in"]),
        ("here.py:Mine", ["is a folder"]),
        ("mine.txt:Mine", ["wanted FILE.py:Class", "files may end in .py, .ipynb, .md"]),
        ("mine.py:2x", ["without the name of a class"]),
        ("odd.py:Mine", ["not Python that this version reads (line 2)"]),
        ("bytes.py:Mine", ["not a text in UTF-8"]),
        ("sofmax", [WANTED, "did you mean `softmax`?"]),
        ("mine", [WANTED]),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_at_its_place(attention: str, words: list[str]) -> None:
    Path("here.py").mkdir()
    Path("odd.py").write_text("class Mine: ...\nclass class\n")
    Path("bytes.py").write_bytes(b"\xff\xfe\x00")
    said = wrong(attention)
    for word in words:
        assert word in said, said
    assert "model.attention=" in said and "^" in said


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("positions=rope", "`model.positions` (rope) acts inside our attention"),
        ("positions=alibi", "`model.positions` (alibi) acts inside our attention"),
        ("window=3", "`model.window` (3) belongs to softmax"),
        ("n_kv_heads=2", "`model.n_kv_heads` belongs to our attention"),
    ],
)
def test_switches_of_our_attention_are_refused_beside_it(setting: str, words: str) -> None:
    assert words in wrong("mine.py:Mine", setting)


@pytest.mark.parametrize("setting", ["positions=learned", "positions=none", "norm=rmsnorm", "n_layers=3", "d_mlp=40"])
def test_what_stands_around_it_stays_free(setting: str) -> None:
    load_config(None, ["model.attention=mine.py:Mine", setting])


def test_a_runs_own_config_is_read_where_the_file_is_gone() -> None:
    config = parse(b"model: {attention: 'gone.py:Mine'}", "config.yaml")
    assert config.model.attention == "gone.py:Mine"
    assert load_config(None, ["model.attention=gone.py:Mine"], files=False) == config
