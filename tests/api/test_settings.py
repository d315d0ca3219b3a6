"""Settings in Python say what KEY=VALUE says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mhsa_cli as mhsa
from mhsa_cli.api.settings import command_line, config_and_changes
from mhsa_cli.config.grid import expand
from mhsa_cli.config.load import load_config


@pytest.mark.parametrize(
    ("key", "value", "typed"),
    [
        ("n_heads", 2, "2"),
        ("model.n_heads", np.int64(2), "2"),
        ("lr", 1e-05, "1e-5"),
        ("lr", np.float64(0.25), "0.25"),
        ("residual", True, "true"),
        ("save_every", 3, "3"),
        ("window", None, "null"),
        ("betas", [0.5, 0.75], "[0.5, 0.75]"),
        ("betas", (0.5, 0.75), "[0.5, 0.75]"),
        ("positions", "rope", "rope"),
    ],
)
def test_a_value_is_the_same_as_typed(key: str, value: Any, typed: str) -> None:
    path, changes = config_and_changes("copy", {key: value}, {"epochs": 7})
    assert path is None
    wanted = load_config(None, ["task.name=copy", f"{key}={typed}", "train.epochs=7"])
    assert load_config(None, changes) == wanted
    assert command_line("train", path, changes)[:4] == ["mhsa", "train", changes[0], changes[1]]


@pytest.mark.parametrize(
    ("settings", "typed"),
    [
        ({"n_heads": [1, 2, 4]}, ["n_heads=1,2,4"]),
        ({"n_heads": range(1, 3), "residual": [True, False]}, ["n_heads=1,2", "residual=true,false"]),
        ({"betas": [0.5, 0.75], "lr": (0.25, 0.125)}, ["betas=[0.5, 0.75]", "lr=0.25,0.125"]),
        ({"betas": [[0.5, 0.75], [0.5, 0.25]]}, ["betas=[0.5,0.75],[0.5,0.25]"]),
        ({"positions": ["rope", "none"]}, ["positions=rope,none"]),
        ({"lr": {"from": 1e-5, "to": 0.1, "steps": 3, "scale": "log"}}, ["lr=1e-5,0.001,0.1"]),
        (
            {"n_heads": {"from": 2, "to": 4, "steps": 2}, "dropout": {"from": 0, "to": 0.5, "steps": 3}},
            ["n_heads=2,4", "dropout=0,0.25,0.5"],
        ),
    ],
)
def test_a_list_is_an_axis_of_a_grid(settings: dict[str, Any], typed: list[str]) -> None:
    found = expand(*config_and_changes(None, settings, {}, grid=True), 2)
    wanted = expand(None, typed, 2)
    assert [cell.configs for cell in found.cells] == [cell.configs for cell in wanted.cells]


@pytest.mark.parametrize("value", [{}, {"from": 1, "to": 2}, {"from": 1, "to": 2, "steps": 3, "step": 1}])
def test_a_range_that_is_none_is_refused(value: dict[str, int]) -> None:
    with pytest.raises(mhsa.MhsaError):
        config_and_changes(None, {"lr": value}, {}, grid=True)


def test_a_path_is_a_config_and_a_name_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("model: {n_heads: 2}\n")
    Path("other").write_text("model: {n_heads: 2}\n")
    Path("copy").mkdir()
    assert config_and_changes(Path("mine.yaml"), None, {}) == ("mine.yaml", [])
    assert config_and_changes("other", None, {}) == ("other", [])
    assert config_and_changes("missing.yaml", None, {}) == ("missing.yaml", [])
    assert config_and_changes("copy", None, {}) == (None, ["task.name=copy"])
    assert config_and_changes(None, None, {}) == (None, [])


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        ("coppy", {}),
        ("missing.yaml", {}),
        ("copy", {"n_head": 4}),
        ("copy", {"n_heads": 5}),
        ("copy", {"n_heads": [2, 4]}),
        ("copy", {"lr": {"from": 0.1, "to": 0.2, "steps": 3}}),
        ("copy", {"lr": float("nan")}),
        ("copy", {"lr": "fast"}),
        ("copy", {"lr": object()}),
        ("copy", {"task.name": "reverse"}),
        ("copy", {"n_heads": 2, "model.n_heads": 2}),
        ("copy", {"": 1}),
    ],
)
def test_a_wrong_setting_is_an_error_with_a_code(source: str, settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(mhsa.MhsaError) as raised:
        mhsa.train(source, settings, runs=tmp_path / "runs", quiet=True)
    assert raised.value.exit_code == 2 and raised.value.code
    assert not (tmp_path / "runs").exists()


def test_an_axis_has_values(tmp_path: Path) -> None:
    for settings in ({"n_heads": []}, {"seed": [1, 2]}):
        with pytest.raises(mhsa.MhsaError) as raised:
            mhsa.sweep("copy", settings, runs=tmp_path / "runs", quiet=True)
        assert raised.value.exit_code == 2


def test_arguments_of_another_kind_are_errors_of_ours(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    calls: list[Any] = [
        lambda: mhsa.train("copy", name=5, runs=runs),  # type: ignore[arg-type]
        lambda: mhsa.train(len, runs=runs),  # type: ignore[arg-type]
        lambda: mhsa.sweep("copy", seeds="x", runs=runs),  # type: ignore[arg-type]
        lambda: mhsa.load(3, runs=runs),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(mhsa.MhsaError) as raised:
            call()
        assert raised.value.exit_code == 2 and not runs.exists()


def test_a_recipe_and_a_task_of_ones_own_are_sources() -> None:
    assert config_and_changes("copy_h8", None, {}) == ("copy_h8", [])
    assert config_and_changes("mine.py:Mine", None, {}) == (None, ['task.name="mine.py:Mine"'])
