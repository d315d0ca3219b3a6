from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mhsa_cli.commands.config import app
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.recipes import recipes
from mhsa_cli.config.schema import Config
from mhsa_cli.errors import MhsaError, StorageError, UsageError
from tests.environment import plain


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, MhsaError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_init_prints_a_config_that_loads() -> None:
    assert parse(run("init").encode(), "out") == Config()


def test_init_writes_a_file_and_never_over_one(tmp_path: Path) -> None:
    path = tmp_path / "[a] new.yaml"
    said = run("init", str(path))
    assert f"wrote {path}" in said and shlex.split(said)[-2:] == ["--config", str(path)]
    assert load_config(str(path)) == Config()
    path.write_text("mine")
    with pytest.raises(UsageError):
        run("init", str(path))
    assert path.read_text() == "mine"


def test_init_where_no_folder_is(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        run("init", str(tmp_path / "none" / "a.yaml"))


def test_init_on_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty file would be a config, of other settings than were asked for."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError):
        run("init", str(tmp_path / "a.yaml"))
    assert list(tmp_path.iterdir()) == []


def test_check_prints_the_size_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("train: {epochs: 7, steps_per_epoch: 11}")
    assert run("check", str(path)) == f"{path}: ok (task repeat, 8,384 parameters, 77 steps)\n"
    assert "154 steps" in run("check", str(path), "epochs=14")
    assert "231 steps" in run("check", str(path), "--set", "epochs=21")


def test_check_names_the_problems_of_every_file(tmp_path: Path) -> None:
    for name, text in (("b.yaml", "lr: 3"), ("a.yaml", "train: {seed: x}"), ("c.yaml", "")):
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        run("check", *(str(tmp_path / name) for name in ("b.yaml", "a.yaml", "c.yaml")))
    assert [Path(problem.file).name for problem in caught.value.problems] == ["b.yaml", "a.yaml"]


def test_check_without_a_file() -> None:
    with pytest.raises(UsageError, match="no config"):
        run("check", "lr=3")


def test_show_fills_in_defaults_and_loads_back(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: {n_heads: 8}")
    config = parse(run("show", str(path), "lr=0.0625").encode(), "out")
    assert (config.model.n_heads, config.train.lr, config.train.keep) == (8, 0.0625, 2)
    assert parse(run("show").encode(), "out") == Config()


def test_show_json_is_one_document() -> None:
    document: dict[str, Any] = json.loads(run("show", "--json", "task.name=text", "task.path=caf\udce9"))
    assert document["task"]["path"] == "caf\udce9"
    assert document["train"]["betas"] == [0.9, 0.999]


def test_show_of_two_files_is_refused() -> None:
    with pytest.raises(UsageError, match="2 files"):
        run("show", "a.yaml", "b.yaml")


def test_schema_is_json() -> None:
    assert json.loads(run("schema"))["title"] == "Config"


def test_output_survives_a_terminal_without_unicode(tmp_path: Path) -> None:
    path = tmp_path / "é.yaml"
    path.write_text("task: {name: text, path: 漢.txt}", encoding="utf-8")
    environment = {**plain(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from mhsa_cli.commands.config import app; app()"
    for command in ("check", "show"):
        result = subprocess.run(
            [sys.executable, "-c", code, command, str(path)], capture_output=True, env=environment, check=False
        )
        assert (result.returncode, result.stderr) == (0, b"")
        assert b"\\x" in result.stdout or b"\\u" in result.stdout


def test_the_list_of_recipes_is_a_table_and_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = json.loads(run("list", "--json"))
    assert [row["name"] for row in rows] == list(recipes())
    words = run("list").split()
    assert all(row["name"] in words and row["summary"].split()[0] in words for row in rows)
    for row in rows:
        assert run("check", row["name"]).startswith(f"{row['name']}: ok") and run("show", row["name"]) == run(
            "show", row["path"]
        )
