"""A library that is missing, and torch that cannot be imported: errors of their own, from every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mhsa_cli

BLOCK = "import math\n\nclass Attention:\n    def forward(self, x):\n        return x.softmax(-1)\n"
ERRORS = {
    "OSError": "libtorch_cpu.so: cannot open shared object file",
    "ImportError": "undefined symbol: cblas_gemm",
}
NEED = (["train", "--config", "copy", "-q"], ["bench", "--quick"], ["check", "block.py:Attention"])


@pytest.mark.parametrize("kind", ERRORS)
def test_torch_that_cannot_be_imported_is_told_as_what_it_is(tmp_path: Path, kind: str) -> None:
    package, scratch = tmp_path / "shadow" / "torch", tmp_path / "scratch"
    package.mkdir(parents=True)
    scratch.mkdir()
    (package / "__init__.py").write_text("from torch import _C\n")
    (package / "_C.py").write_text(f"def load():\n    raise {kind}({ERRORS[kind]!r} + chr(10) + 'more')\n\nload()\n")
    (tmp_path / "block.py").write_text(BLOCK)
    path = os.pathsep.join([str(package.parent), str(Path(mhsa_cli.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch)}

    def mhsa(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mhsa_cli", *args]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)  # noqa: S603

    for args in NEED:
        said = mhsa(*args)
        assert (said.returncode, said.stdout) == (2, ""), said
        first, way = said.stderr.splitlines()
        assert first.startswith("error: torch ") and first.endswith(f"{kind}: {ERRORS[kind]}")
        assert "torch" in way and "mhsa doctor" in way
    document = json.loads(mhsa(*NEED[2], "--json").stdout)
    assert document["failure"] == "not_loaded" and ERRORS[kind] in document["tried"][0]
    assert mhsa("tasks").returncode == 0 and mhsa("runs").returncode == 0  # these need none
    assert not list(scratch.glob("*.txt"))  # no traceback


@pytest.mark.parametrize("name", ["typer", "rich", "yaml", "psutil"])
def test_a_library_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{name!r}] = None\n")
    path = os.pathsep.join([str(tmp_path), str(Path(mhsa_cli.__file__).parents[1])])
    command = [sys.executable, "-m", "mhsa_cli", "doctor"]
    env = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert said.returncode == 2 and "Traceback" not in said.stderr
    assert name in (said.stdout + said.stderr)
