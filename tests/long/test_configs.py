"""Every config in configs/ reaches the figures in its comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.jobs.initial import first_model
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.records.training import EpochRecord

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_ready_config_gives_its_measured_result(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    config = load_config(str(path))
    found = re.search(r"eval loss ([\d., ]+?) after each epoch", text)
    if found:
        said = {i: float(loss) for i, loss in enumerate(found[1].split(", "))}
    else:
        said = {int(n) - 1: float(loss) for loss, n in re.findall(r"([\d.]+) after epoch (\d+)", text)}
    assert said, "the first lines name the measured loss"
    epochs: list[EpochRecord] = []
    task = make_task(config)
    model = first_model(config, task)
    group = Group([config], task, torch.device("cpu"), models=None if model is None else [model], watch=False)
    for record in records_of(group):
        epochs += [record] if isinstance(record, EpochRecord) else []
        if len(epochs) > max(said):  # nothing is said about what comes later
            break
    # Other processors round differently, and training magnifies it.
    assert {i: epochs[i].eval_loss for i in said} == pytest.approx(said, rel=0.2, abs=1e-3)
    accuracy = re.search(r"accuracy ([\d.]+)%", text)
    assert accuracy
    wanted = float(accuracy[1])
    near = 2.0 if not 10 < wanted < 90 else 8.0  # half-way up, the same steps are reached a little sooner or later
    assert 100 * epochs[-1].eval_accuracy == pytest.approx(wanted, abs=near)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_line_of_a_ready_config_has_its_reason(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#") and not line.endswith(":"):
            assert "  # " in line, line
