"""What a shell is offered: commands, runs, settings, recipes and tasks; nothing on an error, and never with torch."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mhsa_cli.commands import completion
from mhsa_cli.commands.app import COMMANDS as NAMES
from mhsa_cli.commands.app import Commands
from mhsa_cli.commands.completion import COMPLETERS
from mhsa_cli.config.condition import read_condition
from mhsa_cli.config.fields import all_keys, options
from mhsa_cli.config.recipes import recipes
from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.errors import COMPLETION
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.selection import SORTS, STATUSES
from mhsa_cli.runs.sweep_dir import SweepDir
from tests.commands.shell import environment, mhsa
from tests.commands.walk import commands

ROOT = Path(__file__).parents[2]
TRIALS = ["d_mlp=3_n_heads=2_seed=7", "d_mlp=3_n_heads=2_seed=8", "d_mlp=5_n_heads=2_seed=7"]
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def folder(here: Path) -> None:
    """Two runs and a sweep of three trials in ./runs, another run elsewhere, a config, and a hidden folder."""
    for root, name in (("runs", "copy-h4"), ("runs", "torn"), ("else", "other")):
        RunDir.create(Path(root), name).close()
    with SweepDir.create(Path("runs"), "sweep-copy", "s", {"cells": []}) as sweep:
        for trial in TRIALS:
            sweep.begin(trial, 3, []).close()
    (here / "runs/torn/run.json").write_text("{")
    (here / "runs/.hidden").mkdir()


def asked(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    """What is offered, with nothing on stderr."""
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setenv("COLUMNS", "500")
        said = mhsa()
    assert (said.code, said.err) == (0, ""), said
    return [line.partition("\t")[0] for line in said.out.splitlines() if line]


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch):
    """Completes a line as fish asks, which gives the line as it is."""
    more = {COMPLETION: "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return lambda line: asked(monkeypatch, **more, _TYPER_COMPLETE_ARGS=f"mhsa {line}")


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch):
    """Completes a line as bash asks, which splits words at `=` and keeps what is before the last part."""

    def ask(line: str) -> list[str]:
        words = shlex.split(line.replace("=", " = ")) + ([] if line[-1:].strip() else [""])
        lines = "\n".join(["mhsa", *words])
        return asked(monkeypatch, **{COMPLETION: "complete_bash", "COMP_WORDS": lines, "COMP_CWORD": str(len(words))})

    return ask


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", [*NAMES]), ("t", [name for name in NAMES if name.startswith("t")]),
        ("config ", ["init", "list", "check", "show", "schema"]),
        ("explain ", ["copy-h4", "torn", "newest", "sweep-copy", "sweep-copy/"]), ("explain c", ["copy-h4"]),
        ("explain sweep-copy/", [f"sweep-copy/{trial}" for trial in TRIALS]),
        ("explain sweep-copy/d_mlp=3_n_heads=2_seed=", [f"sweep-copy/{trial}" for trial in TRIALS[:2]]),
        ("explain --runs else ", ["other", "newest"]), ("explain --runs=else o", ["other"]),
        ("compare copy-h4 to", ["torn"]), ("curve copy-h4 c", ["copy-h4"]), ("train --resume c", ["copy-h4"]),
        ("runs r", ["rm"]), ("runs rm ", ["copy-h4", "torn", "newest", "sweep-copy", "sweep-copy/"]),
        ("runs --sort ", [*SORTS]), ("runs --status f", [word for word in STATUSES if word.startswith("f")]),
        ("sweep --resume ", ["sweep-copy"]), ("sweep show ", ["sweep-copy"]), ("sweep sh", ["show"]), ("train sh", []),
        ("train model.n_", ["model.n_heads=", "model.n_kv_heads=", "model.n_layers="]),
        ("train n_he", ["n_heads=", "n_heads=4"]), ("train n_heads=4 batch_si", ["batch_size=", "batch_size=16"]),
        ("train task.name=", [f"task.name={task}" for task in TASK_SCHEMAS]),
        ("train name=re", ["name=repeat", "name=reverse"]),
        ("trace residual=", ["residual=true", "residual=false"]), ("train --set lr=", ["lr=0.005"]),
        ("train positions=", [f"positions={word}" for word in options(ModelConfig.model_fields["positions"])]),
        ("train ", [f"{key}=" for key in all_keys()]), ("train nothing=", []),
        ("train --config ", [*recipes(), "tiny.yaml"]), ("train -c tin", ["tiny.yaml"]), ("sweep -c gq", ["gqa"]),
        ("config check gq", ["gqa"]), ("verify --resume-check gq", ["gqa"]),
        ("tasks ", [*TASK_SCHEMAS, "new"]), ("tasks new ", []), ("curve --js", ["--json"]),
        ("nonsense ", []), ("train --name a --name b lr", ["lr=", "lr=0.005"]),
        ("train --nope lr", ["lr=", "lr=0.005"]),
    ],
)  # fmt: skip
def test_a_line_is_completed_in_every_shell(line: str, offered: list[str], whole, split) -> None:
    assert sorted(whole(line)) == sorted(offered)
    kept = line.split(" ")[-1].rfind("=") + 1
    assert sorted(split(line)) == sorted(word[kept:] for word in offered)


def test_every_setting_is_reached_from_each_of_its_prefixes_and_every_offered_value_is_one(whole) -> None:
    for key in all_keys():
        for end in range(len("task.") + 1, len(key) + 1):
            assert f"{key}=" in whole(f"train {key[:end]}"), key[:end]
        for word in whole(f"train {key}="):
            assert read_condition(word) is not None, word  # raises where no config can have it


def test_every_argument_that_names_something_of_ours_is_completed() -> None:
    found = list(commands())
    assert {command.takes for command in found} - {*COMPLETERS} <= {"", "[FILE]", "BLOCK..."}
    taken = {option.metavar for command in found for option in command.options}
    assert {"RUN", "SWEEP", "CONFIG", "KEY=VALUE"} <= taken & {*COMPLETERS}


def test_an_error_offers_nothing_and_says_nothing(whole, split, monkeypatch: pytest.MonkeyPatch) -> None:
    for ask in (whole, split):
        assert ask("explain --runs nowhere ") == [] == ask("explain --runs tiny.yaml c")
    monkeypatch.setattr(completion, "runs_root", lambda _: 1 / 0)
    assert whole("explain ") == [] == split("explain ")
    monkeypatch.setattr(Commands, "shell_complete", lambda *_: 1 / 0)  # beyond what a completer catches
    assert whole("exp") == [] == split("exp")


LINES = [
    "",
    "explain ",
    "runs ",
    "train model.n_",
    "train -c c",
    "tasks ",
    "sweep show ",
    "check ",
    "bench n",
    "export c",
]
ASK = """
import json, os, sys
from mhsa_cli.__main__ import main
for line in json.loads(sys.argv[1]):
    os.environ["_TYPER_COMPLETE_ARGS"] = f"mhsa {line}"
    sys.argv = ["mhsa"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
    assert not {"torch", "numpy", "scipy"} & set(sys.modules), line
"""


def test_completing_loads_no_torch() -> None:
    more = {COMPLETION: "complete_zsh", "PYTHONPATH": str(ROOT)}
    ask = [sys.executable, "-c", ASK, json.dumps(LINES)]
    done = subprocess.run(ask, env=environment(**more), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "copy-h4" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself_completes_with_the_script_that_is_shown(here: Path) -> None:
    program = here / "mhsa"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mhsa_cli "$@"\n')
    program.chmod(0o755)
    script = """
    source <(PATH=".:$PATH" _MHSA_COMPLETE=source_bash mhsa)
    complete -p mhsa
    COMP_WORDS=(mhsa explain sweep-copy/d_mlp = 3_n_heads = 2_seed =) COMP_CWORD=7
    PATH=".:$PATH" _mhsa_completion mhsa
    echo "${COMPREPLY[@]}"
    """
    ask = ["bash", "--norc", "-c", script]
    done = subprocess.run(ask, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, check=False)
    [installed, words] = done.stdout.splitlines()
    assert "_mhsa_completion" in installed and words.split() == ["7", "8"], done.stderr


def test_the_script_and_its_installation_are_options_of_the_whole_program() -> None:
    told = mhsa("--help").out
    assert "--install-completion" in told and "--show-completion" in told
    assert "completion" not in mhsa("train", "--help").out
