"""The look through our own source sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.rows.source_scan import dangers, scan


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "import torch, shelve",
        "from os import system",
        "torch.load(path)",
        "np.load(path)",
        "f(path, allow_pickle=True)",
        "yaml.load(text, Loader)",
        "f(yaml.UnsafeLoader)",
        "eval(text)",
        "run(text, shell=True)",
        "run(text, shell=wanted)",
        "importlib.import_module(name)",
        "os.system(text)",
    ],
)
def test_a_dangerous_line_is_found(line: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"x = 1\n{line}\n")
    assert [number for number, _ in scan(file)] == [2]


@pytest.mark.parametrize(
    "line", ["f(text, shell=False)", "importlib.import_module('torch')", "model.eval()", "load(data)"]
)
def test_a_harmless_line_is_not(line: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(line)
    assert scan(file) == []


def test_our_source_has_none() -> None:
    assert dangers() == []
