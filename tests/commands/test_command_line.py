"""The command line itself: every help on every screen, options given twice, words that lead on to what was meant."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand

from mhsa_cli.commands.app import app
from mhsa_cli.commands.command_line import Command, Group, _ParseError
from mhsa_cli.commands.suggestions import SYNONYMS
from mhsa_cli.config.dump import json_schema
from mhsa_cli.config.schema import Config, ModelConfig, TrainConfig
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.renderers.files import ENDINGS
from mhsa_cli.renderers.files.formats import RENDERERS
from tests.commands.shell import Said, mhsa
from tests.commands.walk import functions

WIDTHS = (20, 40, 60, 80)
ENCODINGS = ("ascii", "latin-1", "utf-8")


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is registered, groups included, with the words that call it."""
    yield path, command
    for name in command.list_commands(None) if isinstance(command, Group) else ():
        yield from walk(command.get_command(None, name), (*path, name))


ROOT = typer.main.get_command(app)
COMMANDS = dict(walk(ROOT))
every_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


def options(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def refused(*arguments: str, encoding: str = "utf-8") -> str:
    said = mhsa(*arguments, encoding=encoding)
    assert (said.code, said.out) == (2, ""), said
    assert said.err.startswith("error: ") and "internal" not in said.err
    return said.err


@every_command
def test_every_command_has_our_help_and_our_errors(path: tuple[str, ...]) -> None:
    assert isinstance(COMMANDS[path], Command | Group)


@every_command
def test_help_on_every_screen(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS[path]
    names = [option for param in options(command) for option in param.opts] + (
        [] if not isinstance(command, Group) else command.list_commands(None)
    )
    texts = [" ".join(line.split()) for param in command.params if param.help for line in param.help.split("\n")]
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        whole = mhsa(*path, "--help").out
        for encoding in ENCODINGS:
            said = mhsa(*path, "--help", encoding=encoding)
            assert (said.code, said.err) == (0, "") and said.out.isascii() and said.out == whole
        words = whole.split()
        assert all(any(word.strip(",:") == name for word in words) for name in names)  # never broken, at any width
        assert all(text in " ".join(words) for text in texts)  # never mixed with the column beside it
        for line in whole.splitlines():
            assert len(line) <= width or ": mhsa " in line or len(line.split()) == 1, (width, line)
        if width == 80:  # an option, its metavar and the beginning of its text are one line
            below = whole.split("\nOptions\n")[1].splitlines()
            assert all(len(line.split("  ")) > 2 for line in below if line.startswith("  -"))
        if width < 60:
            assert all(f"\n{param.opts[0]}" in whole or f", {param.opts[0]}" in whole for param in options(command))
            assert "    " not in whole


@every_command
def test_a_summary_is_a_line_and_the_example_a_command_with_options_of_its_own(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    if path:
        assert len(command.help.partition("\n")[0]) <= 58 and not command.help.partition("\n")[0].endswith(".")
        _, *words = shlex.split(command.epilog.removeprefix("Example: "))
        assert tuple(words[: len(path)]) == path
        rest = words[len(path) :]
        while isinstance(command, Group):
            command, rest = command.get_command(None, rest[0]), rest[1:]
        spellings = {name for param in command.params for name in param.opts}
        assert {word for word in rest if word.startswith("-")} <= spellings


def test_help_lists_the_kinds_of_pictures_and_every_command_once() -> None:
    assert set(ENDINGS) == set(RENDERERS) and all(f".{ending}" in mhsa("curve", "--help").out for ending in RENDERERS)
    headed = [name for _, commands in ROOT.sections(None) for name, _ in commands]  # type: ignore[attr-defined]
    assert sorted(headed) == sorted(ROOT.list_commands(None))  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_unknown_option_is_told_in_every_encoding(encoding: str) -> None:
    for path in COMMANDS:
        assert "--nöpe" in refused(*path, "--nöpe", encoding=encoding).replace("\\xf6", "ö"), path


def test_spellings_of_one_option_are_one_option() -> None:
    for twice in (["-c", "a.yaml", "--config=b.yaml"], ["-ca.yaml", "--config", "b.yaml"]):
        told = refused("train", *twice)
        assert "a.yaml" in told and "b.yaml" in told
    assert "--linear" in refused("curve", "--log", "--linear")
    assert "there is no such file" in refused("train", "--config", "--no-option")  # a value that looks like one
    assert "`--name`" in refused("train", "--config", "--name")
    assert mhsa("runs", "--json", "--json") == Said(0, "[]\n", "")


def test_a_group_alone_shows_its_help() -> None:
    for path, command in COMMANDS.items():
        if isinstance(command, Group):
            assert mhsa(*path) == mhsa(*path, "--help") == mhsa(*path, "help")
            assert all(name in mhsa(*path).out.split() for name in command.list_commands(None))


def test_help_and_the_schema_read_no_docstring(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -OO` drops them all."""
    schema = json_schema()
    for _, function in functions():
        monkeypatch.setattr(function, "__doc__", None)
    for section in (Config, ModelConfig, TrainConfig, *TASK_SCHEMAS.values()):
        monkeypatch.setattr(section, "__doc__", None)
    bare = dict(walk(typer.main.get_group(app)))
    told = {path: (command.help, command.epilog) for path, command in COMMANDS.items()}
    assert {path: (command.help, command.epilog) for path, command in bare.items()} == told
    assert all(text for text, _ in told.values()) and json_schema() == schema


def test_help_and_version_are_commands_too() -> None:
    assert mhsa("version") == mhsa("--version") and mhsa("version").out.startswith("mhsa ")
    assert mhsa("help", "train") == mhsa("train", "--help")
    assert mhsa("help", "config", "show") == mhsa("config", "show", "--help")
    assert "`nothing`" in refused("help", "nothing")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ls", "mhsa runs"), ("list", "mhsa runs"), ("show a", "mhsa runs a"), ("heads a", "mhsa inspect-heads a"),
        ("eval", "mhsa evaluate"), ("plot a", "mhsa curve a"), ("resume a", "mhsa train --resume a"),
        ("trian", "mhsa train"), ("inspect_heads", "mhsa inspect-heads"), ("run", "mhsa train"),
        ("config chekc a.yaml", "mhsa config check a.yaml"), ("init my.yaml", "mhsa config init my.yaml"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_command_leads_on_to_one(typed: str, offered: str) -> None:
    told = refused(*typed.split())
    assert re.findall(r"mhsa .*", told)[-1] == offered and f"`{typed.split()[-2 if ' ' in typed else 0]}`" in told


def test_what_is_offered_behind_a_synonym_exists() -> None:
    for meant, words in SYNONYMS.items():
        command, *rest = meant.split()
        said = mhsa(command, "--help").out if command in ROOT.commands else mhsa("--help").out  # type: ignore[attr-defined]
        assert command in ROOT.commands or command in said  # type: ignore[attr-defined]
        assert all(word in said for word in rest)
        assert not set(words.split()) & set(ROOT.commands)  # type: ignore[attr-defined]


def test_a_word_like_nothing_gets_the_commands_listed() -> None:
    assert all(name in refused("zzz") for name in ROOT.commands)  # type: ignore[attr-defined]
    assert re.findall(r"mhsa \w.*", refused("tree")) == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("train --n-heads 8", "mhsa train n_heads=8"), ("train --lr 1e-3", "mhsa train lr=1e-3"),
        ("sweep --batch_size=32", "mhsa sweep batch_size=32"), ("train --d-model", "mhsa train d_model=32"),
        ("trace --learning-rate 1e-3", "mhsa trace lr=1e-3"), ("train --task copy", "mhsa train task.name=copy"),
        ("train -lr 3", "mhsa train lr=3"), ("train --rope", "mhsa train positions=rope"),
        ("train --residual", "mhsa train residual=true"), ("train --no-bias", "mhsa train bias=false"),
        ("train --use-rope", "mhsa train positions=rope"), ("bench --fp16", "mhsa bench dtype=bfloat16"),
        ("train --betas 0.9", "mhsa train 'betas=[0.9, 0.999]'"), ("train lr 1e-3", "mhsa train lr=1e-3"),
        ("config show --seed 3", "mhsa config show seed=3"), ("train n_heads = 8", "mhsa train n_heads=8"),
        ("train copy", "mhsa train --config copy"), ("sweep cpoy", "mhsa sweep task.name=copy"),
        ("train my.yaml", "mhsa train --config my.yaml"), ("bench --dim 8 lr=3", "mhsa bench d_model=8"),
    ],
)  # fmt: skip
def test_a_setting_written_otherwise_is_written_out(typed: str, offered: str) -> None:
    told = refused(*typed.split())
    assert told.splitlines()[-1].endswith(offered)


@pytest.mark.parametrize("typed", ["train --zzz 3", "curve --lr 3", "train --max-tokens 3", "verify --n-heads 3"])
def test_a_name_that_is_no_setting_is_not_offered_as_one(typed: str) -> None:
    assert "=" not in refused(*typed.split())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("generate --steps 3", "--max-new-tokens"), ("generate --max-tokens 3", "--max-new-tokens"),
        ("sweep --target 0.5", "--goal"), ("check a.py:A --timeout 3", "--seconds"), ("curve --ouput a", "--output"),
    ],
)  # fmt: skip
def test_an_option_by_another_name_gets_its_own(typed: str, meant: str) -> None:
    assert refused(*typed.split()).splitlines()[-1].split()[-1] == meant


def test_steps_as_an_option_get_their_sentence() -> None:
    told = refused("train", "--steps", "100")
    assert "`train.epochs`" in told and "`train.steps_per_epoch`" in told and "=100" not in told


def test_a_recipe_is_offered_by_its_name() -> None:
    for name in ("copy", "gqa"):
        assert f"mhsa train --config {name}" in refused("train", name)
    assert "task.name=copy" in refused("train", "copy")
    assert "x" * 20 in refused("train", "x" * 9999)  # longer than any file's name


def test_the_name_of_a_run_or_a_sweep_leads_to_its_resume(here: Path) -> None:
    for file in ("runs/r/run.json", "runs/s/sweep.json", "else/r/run.json"):
        Path(file).parent.mkdir(parents=True)
        Path(file).write_text("{}")
    assert refused("train", "r").splitlines()[-1].endswith("mhsa train --resume r")
    assert refused("sweep", "s").splitlines()[-1].endswith("mhsa sweep --resume s")
    assert refused("train", "r", "--runs", "else").splitlines()[-1].endswith("mhsa train --resume else/r")
    for other in (("train", "s"), ("sweep", "r"), ("bench", "r")):
        told = refused(*other)
        assert other[1] in told and "--set" not in told and "--resume" not in told


def test_an_error_leaves_stdout_empty_where_json_is_asked_for() -> None:
    """But for check, whose document says that a block cannot be loaded."""
    asked = [path for path, command in COMMANDS.items() if any("--json" in param.opts for param in command.params)]
    assert len(asked) > 12
    for path in asked:
        if path != ("check",):
            said = mhsa(*path, "no/such/thing", *(["no/such/thing"] if path == ("compare",) else []), "--json")
            assert said.code in (2, 4) and said.out == "" and said.err.startswith("error: "), (path, said)


def test_a_run_is_no_sweep_and_a_missing_name_says_how_many_more_there_are(here: Path) -> None:
    for name in ("a-run", "b-run", "c-run", "d-run", "e-run"):
        Path("runs", name).mkdir(parents=True)
        info = {"format": 1, "status": "finished", "started": "2026-01-31T10:00:00Z", "order": 1}
        Path("runs", name, "run.json").write_text(json.dumps(info))
    assert "mhsa train --resume a-run" in mhsa("sweep", "--resume", "a-run").err
    missing, near = mhsa("explain", "nope").err, mhsa("explain", "a-rnu").err
    assert sum(f"{name}-run" in missing for name in "abcde") == 3 and "2 more" in missing and "mhsa runs" in missing
    assert "a-run" in near and "more" not in near and "mhsa runs" in near


def test_a_key_given_twice_is_refused_in_every_spelling() -> None:
    for twice in (["lr=1", "--set", "lr=2"], ["--set", "train.lr=1", "--set", "lr=2"]):
        told = refused("train", *twice)
        assert all(text in told for text in twice if "=" in text)
    told = refused("check", "a.py:A", "--with", "bias=1", "--with", "d=2", "--with", "bias=3")
    assert "bias=1" in told and "bias=3" in told
    for command_line in (["config", "show"], ["config", "check", "tiny.yaml"]):
        assert "`lr=1`" in refused(*command_line, "lr=1", "train.lr=2")


def test_a_value_that_an_option_does_not_take_is_quoted() -> None:
    for typed in ("sweep --seeds many", "sweep --engine spark", "check a.py:A --jobs 0", "sweep --seeds=many"):
        value = typed.replace("=", " ").split()[-1]
        told = refused(*typed.split())
        assert f"`{value}`" in told and "--" in told
    assert "--name" in refused("train", "--name")
    assert "BLOCK" in refused("check")


@pytest.mark.parametrize(
    ("command", "typed"),
    [("sweep", ["--nope"]), ("sweep", ["--name"]), ("sweep", ["--seeds", "many"]), ("check", [])],
)
def test_what_typer_cannot_read_is_one_kind_of_error(command: str, typed: list[str]) -> None:
    own = COMMANDS[(command,)]
    with pytest.raises(_ParseError):
        TyperCommand.parse_args(own, own.context_class(own, info_name=command), typed)


def test_an_end_that_was_asked_for_is_no_such_error() -> None:
    assert issubclass(typer.BadParameter, _ParseError)
    assert not issubclass(typer.Exit, _ParseError) and not issubclass(typer.Abort, _ParseError)


@every_command
def test_an_option_is_no_value_of_another(path: tuple[str, ...]) -> None:
    for param in [] if isinstance(COMMANDS[path], Group) else COMMANDS[path].params:
        if param.param_type_name == "option" and not param.is_flag:
            said = mhsa(*path, param.opts[0], "--help")
            assert (said.code, said.out) == (2, "") and all(
                word in said.err for word in ("--help", param.metavar or "")
            )
    if path == ("inspect-heads",):
        said = mhsa(*path, "a", "--patch", "-o", "patch.pdf")
        assert said.code == 2 and "--patch" in said.err and "`-o`" in said.err and "L0.H1:" in said.err
