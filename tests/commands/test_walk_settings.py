"""Every setting at the least, the greatest and each choice that the schema allows: trained, resumed, looked at, swept.

A new setting is walked as soon as its line is written; only a new kind of value needs a line in walk.py.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path

import pytest

from mhsa_cli.config.dump import json_schema
from mhsa_cli.core.heads import random_baseline
from tests.commands import custom
from tests.commands.shell import Said, mhsa
from tests.commands.walk import Setting, settings
from tests.settings import later_wins, small_task

# So small that the least of nearly every setting fits with the others.
BASE = [
    "model.d_model=4",
    "model.n_heads=1",
    "train.epochs=1",
    "train.steps_per_epoch=1",
    "train.batch_size=1",
    "train.eval_sequences=1",
]
PROMPT = {"text": "t"}
# Allowed by itself, maybe refused beside the others: then exit 2 for every command, and the setting is named.
APART = ("* task.vocab_size least", "* task.seq_len least", " model.max_seq_len least")
TOO_LITTLE = "text task.eval_fraction least"  # of this text, which is known when it is read
# The greatest of these costs time or memory, or does not fit with this base: the config is only shown.
DEAR = ("task.*", "model.d_model", "model.n_heads", "model.n_kv_heads", "model.n_layers", "model.d_mlp",
        "model.max_seq_len", "train.epochs", "train.steps_per_epoch", "train.batch_size", "train.eval_sequences",
        "train.warmup_steps", "train.threads")  # fmt: skip
# A value that another setting changes the meaning of: walked with that one, too.
PAIRS = {"train.schedule": ("train.epochs", "0"), "model.mlp": ("model.d_mlp", "1")}


def cases() -> Iterator[object]:
    """Every setting with each of its values, but for what the base has already."""
    sections = json_schema()["properties"]
    for setting in settings():
        place, _, key = setting.key.partition(".")
        usual = dict(given.split("=") for given in [*BASE, *small_task(setting.task or "repeat")]).get(setting.key)
        default = sections[place]["default"].get(key) if place != "task" else None
        for which, value in [("least", setting.least), ("most", setting.most), *((c, c) for c in setting.choices)]:
            if value is None or value in (usual, str(default), "null"):
                continue
            id_ = f"{setting.task} {setting.key} {which}"
            yield pytest.param(setting, which, {setting.key: value}, id=id_)
            if setting.key in PAIRS:
                other, its = PAIRS[setting.key]
                yield pytest.param(setting, which, {setting.key: value, other: its}, id=f"{id_} with {other}")


@pytest.fixture
def place(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to stand, with the files that settings name."""
    monkeypatch.setattr(random_baseline, "HEADS", 3)  # 200 random heads beside each of these would be half of the time
    custom.write(here)
    (here / "text.txt").write_text("to be or not to be, that is the question: whether 'tis nobler\n" * 3)
    return here


def run(code: int, *arguments: str) -> Said:
    said = mhsa(*arguments)
    assert said.code == code, (arguments, said.err[-2000:])
    assert "Traceback" not in said.out + said.err
    return said


@pytest.mark.parametrize(("setting", "which", "chosen"), list(cases()))
def test_each_setting(setting: Setting, which: str, chosen: dict[str, str], place: Path) -> None:
    task, value = setting.task or "repeat", chosen[setting.key]
    given = later_wins(*small_task(task), *BASE, *(f"{key}={text}" for key, text in chosen.items()))
    walked = f"{setting.task} {setting.key} {which}"
    if walked == TOO_LITTLE or (
        any(fnmatch.fnmatch(walked, pattern) for pattern in APART) and mhsa("config", "show", *given).code
    ):
        for command in (["train"], ["sweep", "--seeds", "1"], ["trace"]):
            assert setting.key in run(2, *command, *given).err
        return
    if which == "most" and any(fnmatch.fnmatch(setting.key, pattern) for pattern in DEAR):
        said = mhsa("config", "show", "--json", *given)
        section, _, key = setting.key.partition(".")
        if said.code == 0:
            assert float(said.json[section][key]) == float(value)
        else:
            assert said.code == 2 and setting.key in said.err
        return
    theirs = value.endswith(":Mine")
    named = ["--attention", value] if theirs else []
    run(0, "config", "show", *given)
    run(0, "train", *given, "--name", "r")
    for command in ("timeline", "verify"):
        run(0, command, "r")
    run(0, "inspect-heads", "r", "--scores", *([] if theirs else ["--circuits", "--ablate", "L0"]), *named)
    run(0, "generate", "r", "--prompt", PROMPT.get(task, "1"), *named)
    run(0, "train", "--resume", "r", "train.epochs=2", *named)
    run(2 if theirs else 0, "trace", *given)
    run(0, "sweep", *given, "--seeds", "1", "--name", "s")


def outside() -> Iterator[object]:
    """A number next to each bound, outside it."""
    for setting in settings():
        for bound, step in ((setting.least, -1), (setting.most, 1)):
            if bound is not None:
                number = float(bound) + step if "e" in bound else int(bound) + step
                yield pytest.param(setting, str(number), id=f"{setting.task} {setting.key}={number}")


@pytest.mark.parametrize(("setting", "value"), list(outside()))
def test_a_number_outside_its_bounds_is_refused_and_quoted(setting: Setting, value: str, place: Path) -> None:
    task = setting.task or "repeat"
    for command in (["config", "show"], ["train"], ["sweep"]):
        said = run(2, *command, *later_wins(*small_task(task), f"{setting.key}={value}"))
        assert setting.key in said.err and value in said.err and said.out == ""
