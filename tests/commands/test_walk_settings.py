"""Every setting at the least, the greatest and each choice that the schema allows: trained, resumed, looked at, swept.

A new setting is walked as soon as its line is written; only a new kind of value needs a line in walk.py.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import save

from mhsa_cli.config.dump import json_schema
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.core.heads import random_baseline
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import build_model
from tests.commands import custom
from tests.commands.shell import Said, mhsa
from tests.commands.walk import settings
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
# Of this text, and of the ids of these rows, which are known when they are read.
TOO_LITTLE = ("text task.eval_fraction least", "rows task.vocab_size least")
# The greatest of these costs time or memory, or does not fit with this base: the config is only shown.
DEAR = ("task.*", "model.d_model", "model.n_heads", "model.d_head", "model.n_kv_heads", "model.n_layers",
        "model.encoder_layers", "model.d_mlp",
        "model.max_seq_len", "train.epochs", "train.steps_per_epoch", "train.batch_size", "train.eval_sequences",
        "train.warmup_steps", "train.min_lr", "train.threads")  # fmt: skip
# A value that another setting changes the meaning of: walked with that one, too.
ITSELF = "train.init"  # a file that fits the base alone
PAIRS = {"train.schedule": ("train.epochs", "0"), "model.mlp": ("model.d_mlp", "1")}


@dataclass(frozen=True)
class Case:
    """A setting at one of its values, with what else gives that value a meaning."""

    task: str
    key: str
    which: str
    chosen: dict[str, str]

    def __str__(self) -> str:
        given = dict(self.chosen)
        value, more = given.pop(self.key), "".join(f" {key}={text}" for key, text in given.items())
        return f"{self.task} {self.key} {self.which if self.which in ('least', 'most') else value}{more}"

    @property
    def value(self) -> str:
        """The value that is walked."""
        return self.chosen[self.key]

    def settings(self) -> list[str]:
        """What to write on the command line."""
        return written(self.task, self.chosen)

    def is_alone(self) -> bool:
        """Whether it is refused or only shown, where it can be told without the files it names."""
        name = f"{self.task} {self.key} {self.which}"
        if name in TOO_LITTLE or (self.which == "most" and any(fnmatch.fnmatch(self.key, one) for one in DEAR)):
            return True
        return any(fnmatch.fnmatch(name, one) for one in APART) and not fits(self.task, self.chosen)


def written(task: str, chosen: Mapping[str, str]) -> list[str]:
    """Settings beside the base and a small task."""
    return later_wins(*small_task(task or "repeat"), *BASE, *(f"{key}={text}" for key, text in chosen.items()))


def fits(task: str, chosen: Mapping[str, str]) -> bool:
    """Whether a config takes these settings together; files that they name are not looked for."""
    try:
        parse(b"", "base", written(task, chosen))
    except ConfigError:
        return False
    return True


def cases() -> Iterator[Case]:
    """Every setting with each of its values, but for what the base has already."""
    sections = json_schema()["properties"]
    for setting in settings():
        place, _, key = setting.key.partition(".")
        usual = dict(given.split("=") for given in [*BASE, *small_task(setting.task or "repeat")]).get(setting.key)
        default = sections[place]["default"].get(key) if place != "task" else None
        for which, value in [("least", setting.least), ("most", setting.most), *((c, c) for c in setting.choices)]:
            if value is None or value in (usual, str(default), "null"):
                continue
            yield Case(setting.task, setting.key, which, {setting.key: value})
            if setting.key in PAIRS:
                other, its = PAIRS[setting.key]
                yield Case(setting.task, setting.key, which, {setting.key: value, other: its})


CASES = list(cases())
WALKED = [case for case in CASES if not case.is_alone()]


def together(found: Iterable[Case], most: int = 4) -> list[tuple[str, dict[str, str]]]:
    """Put cases into as few configs as take them: of other settings, of one task or of any, `most` in each.

    Each is walked by itself among the long tests.
    """
    configs: list[tuple[str, dict[str, str], int]] = []
    for case in found:
        if case.key == ITSELF:
            configs.append((case.task, case.chosen, most))
            continue
        for at, (task, chosen, count) in enumerate(configs):
            one = {*chosen, *case.chosen} if case.task in ("", task) or not task else set()
            both = {**chosen, **case.chosen}
            if count < most and len(one) == len(chosen) + len(case.chosen) and fits(task or case.task, both):
                configs[at] = (task or case.task, both, count + 1)
                break
        else:
            configs.append((case.task, case.chosen, 1))
    return [(task, chosen) for task, chosen, _ in configs]


@pytest.fixture
def place(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to stand, with the files that settings name."""
    monkeypatch.setattr(random_baseline, "HEADS", 3)  # 200 random heads beside each of these would be half of the time
    custom.write(here)
    (here / "text.txt").write_text("to be or not to be, that is the question: whether 'tis nobler\n" * 3)
    (here / "rows.txt").write_text("".join(f'{{"inputs": "{a}", "targets": "{a % 3}"}}\n' for a in range(9)))
    config = load_config(None, [*small_task("repeat"), *BASE])
    model = build_model(config, build_task(config.task))
    (here / "init.safetensors").write_bytes(save({name: p.detach() for name, p in model.named_parameters()}))
    return here


def run(code: int, *arguments: str) -> Said:
    said = mhsa(*arguments)
    assert said.code == code, (arguments, said.err[-2000:])
    assert "Traceback" not in said.out + said.err
    return said


@pytest.mark.parametrize("case", [case for case in CASES if case.is_alone()], ids=str)
def test_an_end_of_a_setting_is_refused_or_shown(case: Case, place: Path) -> None:
    given = case.settings()
    if case.which == "least":
        for command in (["train"], ["sweep", "--seeds", "1"], ["trace"]):
            assert case.key in run(2, *command, *given).err
        return
    said = mhsa("config", "show", "--json", *given)
    section, _, key = case.key.partition(".")
    if said.code == 0:
        assert float(said.json[section][key]) == float(case.value)
    else:
        assert said.code == 2 and case.key in said.err


TOGETHER = together(WALKED)


def test_every_setting_is_walked() -> None:
    assert len(CASES) > 90 and 10 < len(TOGETHER) < len(WALKED) / 2
    for case in WALKED:
        assert any(case.task in ("", task) and case.chosen.items() <= chosen.items() for task, chosen in TOGETHER), case


@pytest.mark.parametrize(("task", "chosen"), TOGETHER, ids=str)
def test_settings_together(task: str, chosen: dict[str, str], place: Path) -> None:
    walk(task, chosen)


def walk(task: str, chosen: Mapping[str, str]) -> None:
    """Train, resume, look back, trace and sweep with these settings."""
    given = written(task, chosen)
    block = chosen.get("model.attention", "")
    theirs = block.endswith(":Mine")
    named = ["--attention", block] if theirs else []
    run(0, "config", "show", *given)
    run(0, "train", *given, "--name", "r")
    for command in ("timeline", "verify"):
        run(0, command, "r")
    run(0, "inspect-heads", "r", "--scores", *([] if theirs else ["--circuits", "--ablate", "L0"]), *named)
    run(2 if chosen.get("model.causal") == "false" else 0, "generate", "r", "--prompt", PROMPT.get(task, "1"), *named)
    run(0, "train", "--resume", "r", "train.epochs=2", *named)
    run(2 if theirs else 0, "trace", *given)
    run(0, "sweep", *given, "--seeds", "1", "--name", "s")


def test_a_number_outside_its_bounds_is_refused_and_quoted(place: Path) -> None:
    outside = 0
    for setting in settings():
        for bound, step in ((setting.least, -1), (setting.most, 1)):
            if bound is None:
                continue
            value = str(float(bound) + step if "e" in bound else int(bound) + step)
            for command in (["config", "show"], ["train"], ["sweep"]):
                given = later_wins(*small_task(setting.task or "repeat"), f"{setting.key}={value}")
                said = run(2, *command, *given)
                assert setting.key in said.err and value in said.err and said.out == "", (command, given)
            outside += 1
    assert outside > 60
