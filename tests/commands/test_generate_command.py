"""mhsa generate: what the model says, and every way of asking wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.shell import mhsa


def test_it_says_the_prompt_and_what_follows(tiny: Path) -> None:
    said = mhsa("generate", "tiny", "--prompt", "1 2")
    assert said.code == 0 and said.out.startswith("1 2 ")
    full = mhsa("generate", "tiny", "--prompt", "1 2", "--no-cache")
    assert full.out == said.out
    document = mhsa("generate", "tiny", "--prompt", "1 2", "--json").json
    assert document["prompt"] == [1, 2]
    assert said.out.split() == ["1", "2", *document["symbols"]]
    assert mhsa("generate", "tiny", "--prompt", "1 2", "--steps", "0").out.split() == ["1", "2"]


def test_the_same_seed_draws_the_same(tiny: Path) -> None:
    ask = ("generate", "tiny", "--prompt", "1", "--temperature", "2.5", "--seed")
    assert mhsa(*ask, "3").out == mhsa(*ask, "3").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--prompt is empty"),
        (["--prompt", "x"], "'x'"),
        (["--prompt", "1 " * 60], "exceed max_seq_len"),
        (["--prompt", "1", "--steps", "999"], "do not fit into max_seq_len"),
        (["--prompt", "1", "--steps", "-1"], "--steps -1"),
        (["--prompt", "1", "--temperature", "nan"], "--temperature"),
        (["--prompt", "1", "--temperature", "-1"], "--temperature"),
        (["--prompt", "1", "--top-k", "0"], "--top-k 0"),
        (["--prompt", "1", "--seed", "-1"], "--seed -1"),
    ],
)
def test_wrong_questions_are_errors_of_usage(arguments: list[str], words: str, tiny: Path) -> None:
    said = mhsa("generate", "tiny", *arguments)
    assert said.code == 2 and words in said.err
