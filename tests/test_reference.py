"""The pages of docs/reference that repeat the code say what it says, and all of it."""

from __future__ import annotations

import re

import pytest

import mhsa_cli as mhsa
from mhsa_cli.commands.app import COMMANDS
from mhsa_cli.config.fields import all_keys
from mhsa_cli.errors import ANSWERED_NO
from tests.commands.walk import commands
from tests.reference import COLUMNS, EXITS, FOLDER, PAGES, errors, signature


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in {"COLUMNS": "61", "FORCE_COLOR": "1", "MHSA_RUNS": "elsewhere"}.items():
        monkeypatch.setenv(variable, value)
    assert PAGES[name]() == read(name), "run: python -m tests.reference --write"


def test_every_command_and_option_is_on_its_page() -> None:
    text = read("commands.md")
    help_of = dict(re.findall(r"^### mhsa ([^\n]+)\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert set(COMMANDS) | {" ".join(command.words) for command in commands()} == set(help_of)
    for command in commands():
        for option in command.options:
            assert all(name in help_of[" ".join(command.words)] for name in option.names)
    assert max(map(len, "".join(help_of.values()).splitlines())) <= COLUMNS


def test_every_setting_is_on_its_page() -> None:
    rows = set(re.findall(r"^\| `([a-z]+\.\w+)` \|", read("settings.md"), re.MULTILINE))
    assert {key for key in all_keys() if key != "task.name"} <= rows


def test_every_public_name_is_on_its_page() -> None:
    headings = set(re.findall(r"^### mhsa\.(\S+)$", read("api.md"), re.MULTILINE))
    names = {name for name in dir(mhsa) if not name.startswith("__") and name != "nn"}
    assert headings == names | {f"nn.{name}" for name in mhsa.nn.__all__}


def test_every_exit_code_of_an_error_has_its_meaning() -> None:
    raised = {int(row[2]) for row in errors(mhsa.MhsaError)}
    assert set(EXITS) == {0, *raised, ANSWERED_NO, 130}


def test_a_signature_is_written_as_the_code_has_it() -> None:
    def short(self: int, a: str = "x", *, b: int) -> None: ...

    def long(
        a_long_name: int, another_one: str = "x", /, the_third: bool = True, *, of_four: dict[str, int]
    ) -> str: ...

    assert signature("f", short) == "f(a: str = 'x', *, b: int)"
    lines = [
        "a_long_name: int",
        "another_one: str = 'x'",
        "/",
        "the_third: bool = True",
        "*",
        "of_four: dict[str, int]",
    ]
    assert signature("f", long) == "f(\n" + "".join(f"    {line},\n" for line in lines) + ") -> str"
