"""The page that the command writes of a run that was trained here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Opened
from tests.browser.test_report_page import overflow
from tests.commands.shell import SMALL, mhsa

pytestmark = pytest.mark.browser


def test_a_trained_run_and_a_sweep_of_it(
    opened: Callable[..., Opened], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [*SMALL, "n_heads=2", "n_layers=2"]
    assert mhsa("train", *small, "--name", "one").code == 0
    assert mhsa("sweep", *small, "lr=0.001,0.01", "--seeds", "2", "--name", "many").code == 0
    run = mhsa("report", "one", "--json").json
    page = opened(run)
    assert page.text("h1") == "one" and page.text(".player .step") == "step 24 of 24"
    assert page.page.locator(".head").count() == 4
    ablation = run["runs"][0]["ablation"]
    for index in (3, 0):
        page.page.locator(".switch").nth(index).click()
    assert float(page.text(".ablation .big")) == pytest.approx(ablation["coalitions"][0b0110], abs=5.1e-5)
    assert re.search(r"with the weights of step 24\.$", page.text(".ablation .fine"))
    swept = opened(mhsa("report", "many", "--json").json, width=360)
    assert swept.text("h1") == "many" and swept.page.locator(".multiples figure").count() == 2
    for trial in swept.page.locator(".trial").all():
        trial.click()
        assert swept.page.locator(".map").count() == 4 and overflow(swept) <= 0
