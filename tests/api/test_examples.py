"""The examples run, also without pandas, and say what is true; the notebook runs from its first cell to its last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.environment import plain

EXAMPLES = Path(__file__).parents[2] / "examples"
# A package of this name that cannot be imported: as if pandas were not installed.
WITHOUT_PANDAS = 'import sys\nsys.modules["pandas"] = None\n'


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Give this Python's `mhsa` and nothing that says how wide or coloured a page is."""
    return plain() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PANDAS)
    paths = [str(tmp_path), *filter(None, [environment.get("PYTHONPATH")])]
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    wanted = {"heads.py": "offset 6", "sweep.py": "Holm's correction", "grade.py": "scale by the full width, line"}
    assert wanted.get(name, "") in done.stdout
    assert (name in wanted) is not name.startswith("my_")  # those are code that commands in docs take


def texts(cell: Any, kind: str) -> str:
    """Join what a cell gives, of one kind: `text/html` or `text/plain`; "" for what it prints."""
    return "".join(
        output["text"] if output["output_type"] == "stream" else output["data"].get(kind, "")
        for output in cell.outputs
        if (output["output_type"] == "stream") == (not kind)
    )


def image_of(cell: Any) -> str:
    """Decode the picture that a cell draws."""
    found = re.search(r"base64,([\w+/=]+)", texts(cell, "text/html"))
    assert found is not None
    return b64decode(found[1]).decode()


def test_the_notebook_runs(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(EXAMPLES / "heads.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)  # nothing in it can be old
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    run, heads, claims, attention, ablated, curve, answers, explained, sweep, grade = code
    drawn = {"offset 6": run, "attention weights": attention, "success": sweep, "scale by the full width": grade}
    for said, cell in drawn.items():
        assert said in texts(cell, "text/html") and f">{said.split()[0]}</text>" in image_of(cell)
        assert texts(cell, "") == ""  # progress is no output
        assert len(texts(cell, "text/plain").splitlines()) == 1  # the repr; progress is gone
    assert len(set(re.findall(r'fill="#\w{6}"', image_of(run)))) > 20  # maps are painted
    assert "cell, line" in texts(grade, "text/html")
    for cell, column in ((heads, "share"), (claims, "predicate"), (ablated, "delta_nats"), (curve, "eval_accuracy")):
        assert f"<th>{column}</th>" in texts(cell, "text/html")
    assert "[5, 9, 2, 7, 1, 4]" in texts(answers, "text/plain")
    assert "\x1b[1m" in texts(explained, "")  # `!mhsa` is a terminal's
