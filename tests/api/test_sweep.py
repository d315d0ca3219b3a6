"""A sweep in Python is the sweep of the command: its report, its table, its statements."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import mhsa_cli as mhsa
from mhsa_cli.records.sweep import SweepReport
from mhsa_cli.renderers.pictures.sweep_words import pair_words
from mhsa_cli.runs.sweep_dir import report_document
from tests.api.conftest import QUICK, TINY
from tests.api.test_run import rows

ONE_LAYER = {**TINY, "n_layers": 1, "d_mlp": 0, "residual": False}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> mhsa.Sweep:
    root = tmp_path_factory.mktemp("sweep") / "runs"
    with pytest.warns(mhsa.MhsaWarning, match="seeds"):  # too few to show a difference
        return mhsa.sweep("copy", ONE_LAYER, n_heads=[1, 2], seeds=3, runs=root, quiet=True, **QUICK)


def test_the_report_is_that_of_the_folder(sweep: mhsa.Sweep) -> None:
    assert isinstance(sweep.report, SweepReport)
    written = json.loads((sweep.path / "sweep.json").read_text())["report"]
    assert json.loads(json.dumps(report_document(sweep.report, pair_words))) == written
    again = mhsa.load_sweep(sweep.name, runs=sweep.path.parent)
    assert again.report == sweep.report and str(again) == str(sweep) and repr(again) == repr(sweep)
    assert repr(sweep) == "<sweep sweep-copy: 2 settings, 6 of 6 trials finished>"


def test_trials_are_those_of_the_csv(sweep: mhsa.Sweep) -> None:
    with (sweep.path / "sweep.csv").open() as file:
        wanted = list(csv.DictReader(file))
    found = rows(sweep.trials)
    assert [list(row) for row in found] == [list(row) for row in wanted]
    assert [(row["run"], row["model.n_heads"], str(row["seed"])) for row in found] == [
        (row["run"], row["model.n_heads"], row["seed"]) for row in wanted
    ]
    assert mhsa.load(found[4]["run"]).config.model.n_heads == 2


def test_differences_are_the_statements_of_the_report(sweep: mhsa.Sweep) -> None:
    found = rows(sweep.differences)
    assert [row["text"] for row in found] == [pair_words(sweep.report, pair) for pair in sweep.report.pairs]
    assert {(row["first"], row["second"], row["key"]) for row in found} == {("n_heads=1", "n_heads=2", "model.n_heads")}


def test_processes_train_from_a_script_without_a_guard(tmp_path: Path) -> None:
    """A new process would run the script again, and that would start processes again."""
    import subprocess
    import sys

    settings = {**ONE_LAYER, **QUICK, "n_heads": [1, 2]}
    code = f"import mhsa_cli as mhsa\nprint(repr(mhsa.sweep('copy', {settings!r}, seeds=2, jobs=2)))\n"
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "-W", "ignore", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("<sweep sweep-copy: 2 settings, 4 of 4 trials finished>\n", "")


def test_a_goal_is_a_share(tmp_path: Path) -> None:
    with pytest.raises(mhsa.MhsaError) as raised:
        mhsa.sweep("copy", n_heads=[1, 2], goal=99, runs=tmp_path / "runs")
    assert raised.value.exit_code == 2 and not (tmp_path / "runs").exists()


def test_trials_that_fail_are_warned_of(tmp_path: Path) -> None:
    with pytest.warns(mhsa.MhsaWarning, match="did not finish"):
        settings = {**ONE_LAYER, **QUICK, "epochs": 30}
        found = mhsa.sweep("copy", settings, lr=[1e-3, 1e4], seeds=1, runs=tmp_path / "runs", quiet=True)
    assert [row["status"] for row in rows(found.trials)] == ["finished", "failed"]
