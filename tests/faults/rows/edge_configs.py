"""Configs, texts and names at the edges of what there is: each trains to its end, or is refused for its own fault."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import typer.main

from mhsa_cli.config.load import load_config
from tests.commands.shell import Said, mhsa
from tests.faults.row import Place, Row
from tests.faults.rows.edge_table import BASE, REFUSED, TRAINED

QUICK = 10  # one training of so many is met in the short form

# A text and what comes of a training on it, with rows of 3 characters and half of it kept for evaluation.
TEXTS: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 2),
    "one character": (b"a", 2),
    "one character, often": (b"a" * 99, 2),
    "only new lines": (b"\n" * 40, 2),
    "seven characters": (b"abcdefg", 2),
    "eight characters": (b"abcdefgh", 0),
    "two different": (b"ab" * 20, 0),
    "a byte order mark alone": (b"\xef\xbb\xbf", 2),
    "a byte order mark": (b"\xef\xbb\xbf" + b"the cat sat" * 3, 0),
    "a mark in the middle": ("the \ufeffcat sat on ".encode() * 3, 0),
    "CRLF": (b"a\r\nb\r\n" * 9, 0),
    "CRLF that leaves too little": (b"\r\n" * 4, 2),
    "CR": (b"a\rb\r" * 9, 0),
    "emoji": ("🙂👩\u200d🚀 ".encode() * 9, 0),
    "combining": ("e\u0301a\u0308 ".encode() * 9, 0),
    "right to left": ("\u202eab שלום ".encode() * 9, 0),
    "control characters": (b"a\x1b[31m\x07\x7fb" * 9, 0),
    "tabs and separators": ("a\tb\u2028c\x85 \u00a0".encode() * 9, 0),
    "private and last": ("\ue000\U0010ffff\ufffe a".encode() * 9, 0),
    "ten thousand different": ("".join(map(chr, range(0x4E00, 0x4E00 + 10_000))).encode(), 0),
    "markup": (b"[red]{0}%s$HOME[/red]\\ " * 5, 0),
    "NUL at the end": (b"the cat sat on" * 3 + b"\0", 2),
    "latin-1": (b"caf\xe9 " * 9, 2),
    "UTF-16": ("the cat sat".encode("utf-16") * 3, 2),
    "half a character": ("the cat sat on 🙂".encode()[:-1], 2),
    "a surrogate in UTF-8": (b"the cat \xed\xa0\x80 sat" * 3, 2),
    "an overlong NUL": (b"the cat \xc0\x80 sat" * 3, 2),
}

# The name of a run, and what comes of it.
NAMES: dict[str, int] = {
    "x" * 100: 0, "x" * 101: 2, "é" * 50: 0, "é" * 50 + "x": 2, "\udcff" * 100: 0, "a b": 0, "[red]x[b]": 0, "a=b": 0,
    "%s{0}$HOME": 0, "~": 0, "x.": 2, "x ": 2, " x": 2, ".x": 2, "-x": 2, "": 2, "a/b": 2, "..": 2, "newest": 2,
    "CON": 2, "nul.txt": 2, "a\nb": 2, "a\x7fb": 2, "a:b": 2, "漢字": 0, "step-00000001": 0, "run.json": 0, "🙂": 0,
}  # fmt: skip


built = cache(typer.main.get_command)  # once for hundreds of calls


class Case(NamedTuple):
    """A line of one of the tables."""

    table: str
    line: str


_TRAINED = [Case("trained", line) for line in TRAINED.strip().splitlines()]
SHORT = [*_TRAINED[::QUICK], *(Case("refused", line) for line in REFUSED.strip().splitlines())]
SHORT += [*(Case("text", name) for name in TEXTS), *(Case("name", name) for name in NAMES)]
LONG = [*SHORT, *(case for number, case in enumerate(_TRAINED) if number % QUICK)]


def cases(count: int, seed: int) -> Iterator[Case]:
    """Some trainings and every line that costs little, then the other trainings; `seed` draws nothing here."""
    yield from LONG[:count]


def settings(words: str) -> list[str]:
    """Put the words of a line in the place of those that a plain training has."""
    said = dict(word.partition("=")[::2] for word in (*BASE.split(), *words.split()))
    name = said.pop("name")
    known = [key for key in said if key != "vocab_size" or name != "text"]
    return [f"task.name={name}", *(f"{key}={said[key]}" for key in known)]


def check(case: Case, place: Place) -> None:
    """Train in a folder of its own, in this process."""
    with contextlib.chdir(place.path), mock.patch.object(typer.main, "get_command", built):
        if case.table == "refused":
            refused(case.line)
        elif case.table == "trained":
            words, _, codes = case.line.partition(" -> ")
            train([*settings(words), "--name", "r"], "r", [int(code) for code in (codes or "0").split("/")])
        elif case.table == "text":
            data, code = TEXTS[case.line]
            Path("a.txt").write_bytes(data)
            words = settings("name=text seq_len=3 eval_fraction=0.5 steps_per_epoch=1 n_heads=1")
            train([*words, "task.path=a.txt", "--name", "r"], "r", [code])
        else:
            train([*settings("epochs=0 n_heads=1"), f"--name={case.line}"], case.line, [NAMES[case.line]])


def refused(line: str) -> None:
    """See that a config is refused before anything is made, and that the key is named which must be changed."""
    words, _, key = line.partition(" | ")
    said = mhsa("train", *settings(words))
    assert (said.code, said.out) == (2, ""), f"exit code {said.code}: {said.err[-400:]}"
    assert f"`{key}`" in said.err, f"`{key}` is not named: {said.err}"
    assert not Path("runs").exists()


def train(arguments: list[str], name: str, codes: list[int]) -> None:
    """Train, and look at what is left: whole, finite, and of as many steps and heads as the config says."""
    said = calm(mhsa("train", *arguments, "--json"))
    assert said.code in codes, f"exit code {said.code}: {said.err[-400:]}"
    if said.code == 2:
        assert not any(Path().rglob("run.json"))
        return
    run = Path("runs") / name
    verified = mhsa("verify", run)
    assert verified.code == 0, verified.out[-600:] + verified.err
    if said.code == 3:
        return
    info, config = json.loads((run / "run.json").read_text()), load_config(str(run / "config.yaml")).to_dict()
    assert info["status"] == "finished" and info["weights_sha256"] == said.json["weights_sha256"]
    assert info["step"] == config["train"]["epochs"] * config["train"]["steps_per_epoch"]
    assert math.isfinite(info["final"]["eval_loss"]) and 0 <= info["final"]["eval_accuracy"] <= 1
    found = calm(mhsa("inspect-heads", run, "--json"))
    assert found.code == 0, found.err
    maps = found.json
    assert len(maps["heads"]) == config["model"]["n_layers"] * config["model"]["n_heads"]
    for row in rows(maps["weights"]):
        assert abs(sum(row) - 1) < 0.02, f"a row of attention comes to {sum(row)}"


def calm(said: Said) -> Said:
    """See that no fault of ours came out."""
    assert "Traceback" not in said.err and "internal error" not in said.err, said.err[-900:]
    return said


def rows(weights: Any) -> Iterator[list[float]]:
    """The rows of all maps."""
    if isinstance(weights[0], list):
        for part in weights:
            yield from rows(part)
    else:
        yield weights


def windows_are_one_shorter(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a window of one token sees none."""
    from mhsa_cli.core.model import attention

    real = attention.causal_window

    def instead(n_queries: int, n_keys: int, window: int | None = None, device: Any = None) -> Any:
        return real(n_queries, n_keys, None if window is None else window - 1, device)

    patch.setattr(attention, "causal_window", instead)


ROW = Row(
    fault="configs, texts and names at the edges: by hand, each trained and inspected, or refused for its own fault",
    promise="P6",
    quick=len(SHORT),
    long=len(LONG),
    cases=cases,
    check=check,
    mutant="tests.faults.rows.edge_configs:windows_are_one_shorter",
)
