"""Conditions on configs: which configs satisfy them, and what no config can."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.config.condition import read_condition
from mhsa_cli.config.fields import all_keys
from mhsa_cli.config.load import load_config
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.scalars import write


def holds(text: str, *overrides: str) -> bool:
    condition = read_condition(text)
    assert condition is not None
    return condition.holds(load_config(None, overrides, files=False))


@pytest.mark.parametrize("task", ["repeat", "copy", "induction", "text"])
def test_every_setting_of_a_config_is_a_condition_that_it_satisfies(task: str) -> None:
    overrides = [f"task.name={task}", *(["task.path=a.txt"] if task == "text" else ["vocab_size=37"]), "n_heads=8"]
    plain = load_config(None, overrides, files=False).to_dict()
    for section, settings in plain.items():
        for key, value in settings.items():
            text = f"{section}.{key}={write(value)}"
            assert holds(text, *overrides), text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n_heads=8", True), ("model.n_heads=4", False), ("n_heads=2,8,16", True), ("n_heads=2,4", False),
        ("lr=0.005", True), ("lr=5e-3", True), ("lr=5", False), ("dropout=0", True), ("n_kv_heads=null", True),
        ("residual=false", True), ("residual=true", False), ("betas=[0.9,0.999]", True), ("betas=[0.9,0.99]", False),
        ("name=repeat", True), ("task.name=copy,shift", False), ("min_period=3", False),
        ("attention=other.py:Name,softmax", True),
    ],
)  # fmt: skip
def test_a_value_is_compared_as_a_config_holds_it(text: str, wanted: bool) -> None:
    assert holds(text, "n_heads=8") is wanted


def test_a_setting_of_another_task_holds_only_there() -> None:
    assert holds("min_period=3", "task.name=induction", "min_period=3") and not holds("min_period=3")
    assert "task.min_period" in all_keys()


@pytest.mark.parametrize("text", ["copy-h4", "", "*", "copy h4=8"])
def test_a_text_without_a_key_is_no_condition(text: str) -> None:
    assert read_condition(text) is None


@pytest.mark.parametrize(
    ("text", "code", "meant"),
    [
        ("n_heds=8", "unknown-key", "n_heads"), ("model.lr=1", "unknown-key", "train"),
        ("zzzz=8", "unknown-key", ""), ("task.min_perod=3", "unknown-key", "min_period"),
        ("n_heads=eight", "value", ""), ("n_heads=4,eight", "value", ""), ("n_heads=1.5", "value", ""),
        ("n_heads=true", "value", ""), ("positions=roep", "value", "rope"), ("name=coppy", "value", "copy"),
        ("n_heads=", "value", ""), ("model=3", "section", ""),
    ],
)  # fmt: skip
def test_what_no_config_can_have_is_refused_with_the_nearest_name(text: str, code: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_condition(text)
    [problem] = caught.value.problems
    assert problem.code == code and (not meant or f"`{meant}" in str(problem.hint))


def test_own_tasks_and_their_settings_are_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def sums(generator, rows, *, vocab_size=5, seq_len=3, carry=2): ...\n")
    config = load_config(None, ["task.name=mine.py:sums"])
    for text, holds in (("task.name=mine.py:sums", True), ("task.carry=2,4", True), ("task.carry=3", False)):
        condition = read_condition(text)
        assert condition is not None and condition.holds(config) is holds
    other = read_condition("task.carry=2")
    assert other is not None and not other.holds(load_config(None))
